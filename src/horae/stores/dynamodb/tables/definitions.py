"""How the tables look: keys, indexes and which of them expire."""

from collections.abc import Mapping, Sequence

from horae.core.values import Value

VERSION = 1  # of the tables; raised by whatever changes them


class Index(Value, frozen=True):
    """A global index; it holds keys only, because rows are read again by their id."""

    name: str
    pk: str
    sk: str


class Table(Value, frozen=True, kw_only=True):
    """A table."""

    kind: str  # the end of its name
    pk: str
    sk: str | None = None
    indexes: Sequence[Index] = ()
    expires: bool = True  # by the attribute `ttl`

    @property
    def keys(self) -> Mapping[str, str]:
        """The attributes of keys, which are texts, with the letter of that type: all are texts."""
        names = {
            self.pk,
            *([self.sk] if self.sk else []),
            *(key for index in self.indexes for key in (index.pk, index.sk)),
        }
        return dict.fromkeys(sorted(names), "S")


TABLES = (
    Table(
        kind="runs",
        pk="id",
        indexes=(
            Index("by_owner", "os", "due"),
            Index("by_job", "job", "due"),
            Index("by_slot", "job", "slot_key"),
            Index("dead", "os", "dead"),
            Index("by_params", "pb", "id"),
        ),
    ),
    Table(kind="due", pk="line", sk="at"),
    Table(
        kind="jobs",
        pk="job",
        sk="sk",
        indexes=(Index("by_owner", "os", "job"), Index("by_params", "pb", "job"), Index("old", "old", "old_at")),
    ),
    Table(kind="meta", pk="pk", sk="sk"),
    Table(kind="events", pk="chunk", sk="seq"),
    Table(kind="blobs", pk="pk", sk="sk"),
)
