"""Names of owners and keys that look alike when they are joined: owners do not get in each other's way."""

from horae.core.drafts import Draft
from horae.core.model import OnFailure, Policy, Run, State
from tests import acts
from tests.conformance.builders import one_shot
from tests.engine.system import System, taking
from tests.engine.test_jobs import jobs_of


async def keyed(system: System, owner: str, key: str) -> Run:
    policy = Policy(on_failure=OnFailure.BLOCK)
    draft = Draft(task="slow", ordering_key=key, policy=policy, allow_unknown_task=True)
    job = await jobs_of(system).create(draft, owner=owner, by=owner)
    assert job.run is not None
    return job.run


async def test_an_owner_with_a_colon_in_its_name_shares_no_gate(either_system: System) -> None:
    system = either_system
    system.scripts["slow"] = taking(60)
    await system.add_node()
    one = await keyed(system, "acme", "billing:invoices")
    await system.advance(seconds=1)
    other = await keyed(system, "acme:billing", "invoices")
    assert await system.store.ahead_of(other) == []
    await system.advance(seconds=1)
    assert [(await system.run(run.id)).state for run in (one, other)] == [State.RUNNING, State.RUNNING]


async def test_runs_that_an_earlier_release_wrote_keep_their_order_with_new_ones(either_system: System) -> None:
    system = either_system
    system.scripts["slow"] = taking(5)
    now = system.clock.now()
    key = "billing:invoices"
    waiting = one_shot(now, owner="acme", task="slow", ordering_key=key, gate=f"key:acme:{key}", created_at=now)
    await acts.create(system.store, [waiting])
    await system.advance(seconds=1)
    new = await keyed(system, "acme", key)
    assert [run.id for run in await system.store.ahead_of(new)] == [waiting.id]
    await system.add_node()
    await system.advance(seconds=30)
    first, second = await system.run(waiting.id), await system.run(new.id)
    assert first.finished_at is not None
    assert second.first_started_at is not None
    assert second.first_started_at >= first.finished_at
