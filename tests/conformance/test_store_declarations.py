"""Declared schedules: every version that was seen, until it is forgotten."""

from datetime import datetime

from horae.core.records import Declaration
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import MINUTE, NOW, ODD


def declared(
    key: str = "morning", digest: str = "1", app: str = "shop:app", seen_at: datetime = NOW, owner: str = "ada"
) -> Declaration:
    return Declaration(owner=owner, app=app, key=key, digest=digest, seen_at=seen_at)


async def test_versions_are_kept_by_owner(store: Store) -> None:
    mine = [declared(), declared(digest="2", seen_at=NOW + MINUTE), declared("evening"), declared(ODD, ODD, ODD)]
    await acts.declare(store, "ada", mine)
    await acts.declare(store, "bob", [declared(digest="3", owner="bob")])
    found = await store.records(Declaration, owner="ada")
    assert sorted(found, key=repr) == sorted(mine, key=repr)
    assert await store.records(Declaration, owner="bob") == [declared(digest="3", owner="bob")]
    assert await store.records(Declaration, owner="nobody") == []


async def test_a_version_that_is_declared_again_counts_as_seen_now(store: Store) -> None:
    await acts.declare(store, "ada", [declared()])
    await acts.declare(store, "ada", [declared(digest="2", seen_at=NOW + MINUTE)])
    await acts.declare(store, "ada", [declared(seen_at=NOW + 2 * MINUTE)])
    found = {each.digest: each.seen_at for each in await store.records(Declaration, owner="ada")}
    assert found == {"1": NOW + 2 * MINUTE, "2": NOW + MINUTE}


async def test_the_same_version_may_come_twice_in_one_call(store: Store) -> None:
    await acts.declare(store, "ada", [declared(), declared()])
    assert await store.records(Declaration, owner="ada") == [declared()]


async def test_nothing_to_declare_is_no_work(store: Store) -> None:
    await acts.declare(store, "ada", [])
    await acts.forget(store, "ada", app="shop:app", keys=[])
    assert await store.records(Declaration, owner="ada") == []


async def test_every_version_under_a_key_is_forgotten_and_no_other(store: Store) -> None:
    others = [declared("evening"), declared(app="other:app")]
    await acts.declare(store, "ada", [declared(), declared(digest="2"), *others])
    await acts.declare(store, "bob", [declared(owner="bob")])
    await acts.forget(store, "ada", app="shop:app", keys=["morning", "unknown"])
    assert sorted(await store.records(Declaration, owner="ada"), key=repr) == sorted(others, key=repr)
    assert await store.records(Declaration, owner="bob") == [declared(owner="bob")]
