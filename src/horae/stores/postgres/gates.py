"""Gates in PostgreSQL, as far as the end of a run concerns those behind it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from horae.core.model import Run
from horae.core.release import blocks_key
from horae.core.signals import Kind, Signal
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.codecs import columns
from horae.stores.postgres.database import Session


async def leave_gates(session: Session, ended: Sequence[Run]) -> list[datetime]:
    """Note which ended runs block their gates, and let the next go on in the others; answers when those wake."""
    blocking = [run for run in ended if run.gate is not None and blocks_key(run)]
    if blocking:
        await session.rows("add_blocks", *columns(rows.block, blocking))
    ends: dict[str, datetime] = {}
    for run in ended:
        if run.gate is not None and run.finished_at is not None:
            ends[run.gate] = max(run.finished_at, ends.get(run.gate, run.finished_at))
    return await wake_parked(session, ends)


async def wake_parked(session: Session, gates: Mapping[str, datetime]) -> list[datetime]:
    """Let the next parked run of each gate go on at a time, if nothing blocks it; answers when they wake.

    It is a statement of its own, so that it sees what was parked meanwhile.
    """
    if not gates:
        return []
    return await session.value("wake_parked", list(gates), list(gates.values())) or []


def woken_signal(times: Sequence[datetime]) -> list[Signal]:
    """That runs wait to be claimed, from the earliest of these times on."""
    return [Signal(kind=Kind.DUE, at=min(times))] if times else []
