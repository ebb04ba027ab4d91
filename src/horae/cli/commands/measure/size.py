"""`horae size`: what a load needs and what it costs a month, on DynamoDB and on PostgreSQL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

from horae.cli.output import Output, print_json, print_lines
from horae.size.dynamodb import dynamodb_quotes
from horae.size.estimate import Quote
from horae.size.load import PlannedLoad, load_of
from horae.size.postgres import postgres_quote
from horae.size.prices import Prices, read_prices

NotNegative = Parameter(validator=validators.Number(gte=0))
ON = ("dynamodb", "postgresql")


def size(
    *,
    rate: Annotated[float, NotNegative, Parameter(help="One-shot jobs a second, in the mean.")] = 10.0,
    recurring: Annotated[float, NotNegative, Parameter(help="Runs of recurring jobs a second, in the mean.")] = 0.0,
    peak: Annotated[float | None, NotNegative, Parameter(help="Runs a second at the busiest time (3 × mean).")] = None,
    duration: Annotated[float, NotNegative, Parameter(help="Seconds that a task takes.")] = 0.1,
    payload: Annotated[int, NotNegative, Parameter(help="Bytes of parameters and result of a run.")] = 200,
    retention: Annotated[float, NotNegative, Parameter(help="Days of history (HORAE_RETENTION).")] = 30.0,
    queues: Annotated[int, NotNegative, Parameter(help="How many queues, with their priority classes.")] = 1,
    nodes: Annotated[int, NotNegative, Parameter(help="How many nodes (0: as many as it needs).")] = 0,
    on: Annotated[Literal["dynamodb", "postgresql"] | None, Parameter(help="Only this store (both).")] = None,
    prices: Annotated[
        Path | None, Parameter(help="A JSON file with prices of your region, and their date as_of.")
    ] = None,
    output: Output = "table",
) -> None:
    """Show what a load needs and what it costs a month, with the arithmetic. Needs no server.

    The units are those that Horae's own verbs were measured to use; the prices are list prices with their date.
    """
    load = load_of(
        rate=rate,
        recurring=recurring,
        peak=peak,
        task_seconds=duration,
        payload_bytes=payload,
        retention_days=retention,
        nodes=nodes,
        queues=queues,
    )
    at = Prices() if prices is None else read_prices(prices)
    quotes: list[Quote] = []
    if on != "postgresql":
        quotes += dynamodb_quotes(load, at)
    if on != "dynamodb":
        quotes.append(postgres_quote(load, at))
    if output == "json":
        print_json(_document(load, at, quotes))
    else:
        print_lines(_lines(load, at, quotes))


def _document(load: PlannedLoad, prices: Prices, quotes: Sequence[Quote]) -> dict[str, Any]:
    return {
        "load": _fields(load),
        "prices": _fields(prices),
        "quotes": [
            {
                "name": quote.name,
                "dollars_a_month": round(quote.dollars, 2),
                "needs": [_fields(need) for need in quote.needs],
                "lines": [{**_fields(line), "dollars": round(line.dollars, 2)} for line in quote.lines],
            }
            for quote in quotes
        ],
    }


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _lines(load: PlannedLoad, prices: Prices, quotes: Sequence[Quote]) -> list[str]:
    runs = f"{load.rate:,g} one-shots and {load.recurring:,g} recurring runs a second, {load.peak:,g} at the peak"
    lines = [f"{runs}; prices of {prices.region}, {prices.as_of}"]
    for quote in quotes:
        lines += ["", f"{quote.name}: ${quote.dollars:,.2f} a month", ""]
        lines += [f"  {need.what:<24} {need.amount:>14}   {need.why}" for need in quote.needs]
        lines.append("")
        lines += [f"  {line.item:<24} {line.dollars:>13,.2f} $  {line.arithmetic}" for line in quote.lines]
    return lines
