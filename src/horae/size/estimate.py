"""The result: what is needed, and dollars line by line with their arithmetic."""

from collections.abc import Sequence

from horae.core.values import Value


class Need(Value, frozen=True):
    """Something that the load needs so many of."""

    what: str
    amount: str
    why: str


class BillLine(Value, frozen=True):
    """A line of the bill for a month."""

    item: str
    dollars: float
    arithmetic: str


class Quote(Value, frozen=True, kw_only=True):
    """One way to run the load, with everything that it costs."""

    name: str
    needs: Sequence[Need]
    lines: Sequence[BillLine]

    @property
    def dollars(self) -> float:
        return sum(line.dollars for line in self.lines)


def figure(value: float) -> str:
    """Write a figure as people read it: 1.2 million, 3,400, 0.25."""
    if value >= 1e9:
        return f"{value / 1e9:,.2f} billion"
    if value >= 1e6:
        return f"{value / 1e6:,.2f} million"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"
