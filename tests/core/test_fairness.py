"""How a claim is shared out among lanes."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from horae.core.decisions import fairness
from horae.core.decisions.fairness import Lane, Offer, part_of_lane

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def offer(queue: str = "a", priority: int = 0, owner: str = "ada", count: int = 100, **changes: object) -> Offer:
    return Offer(Lane(queue, priority, owner), count, changes.get("first_at", NOW), changes.get("room"))  # type: ignore[arg-type]


def share_out(offers: list[Offer], limit: int) -> dict[Lane, int]:
    return fairness.share_out(offers, limit, part=part_of_lane(len(offers), limit))


def test_a_single_lane_gives_all() -> None:
    assert share_out([offer(count=500)], 100) == {Lane("a", 0, "ada"): 100}


def test_queues_take_turns_whatever_waits_in_them() -> None:
    assert share_out([offer("a", count=1000), offer("b", count=1000)], 100) == {
        Lane("a", 0, "ada"): 50,
        Lane("b", 0, "ada"): 50,
    }


def test_what_one_queue_leaves_the_others_get() -> None:
    assert share_out([offer("a", count=1000), offer("b", count=10)], 100) == {
        Lane("a", 0, "ada"): 90,
        Lane("b", 0, "ada"): 10,
    }


def test_owners_take_turns_in_however_many_queues_they_have_runs() -> None:
    flood = [offer(f"queue {number}", owner="bob", count=1000) for number in range(10)]
    other, many = offer("a", count=1000), offer("a", owner="eve", count=1000)
    shares = share_out([*flood, other, many], 90)
    assert (shares[other.lane], shares[many.lane]) == (30, 30)
    assert [shares[each.lane] for each in flood] == [3] * 10


def test_a_higher_priority_comes_first() -> None:
    assert share_out([offer(priority=1, count=70), offer(priority=0, count=70)], 100) == {
        Lane("a", 1, "ada"): 70,
        Lane("a", 0, "ada"): 30,
    }


def test_who_waits_longest_is_first_in_a_turn() -> None:
    late, early = offer("a", first_at=NOW), offer("b", first_at=NOW - timedelta(seconds=1))
    assert share_out([late, early], 1) == {early.lane: 1}


def test_a_queue_with_a_limit_gives_no_more_than_there_is_room_for_in_all_its_lanes() -> None:
    lanes = [offer("a", priority, owner, room=3) for priority in (0, 1) for owner in ("ada", "bob")]
    shares = share_out([*lanes, offer("b")], 100)
    assert sum(share for lane, share in shares.items() if lane.queue == "a") == 3
    assert shares[Lane("b", 0, "ada")] == 97


def test_room_that_one_owner_leaves_is_used_by_another() -> None:
    busy, other = offer("a", owner="ada", room=10), offer("a", owner="bob", room=10, count=100)
    assert sum(share_out([busy, offer("b", owner="ada", count=3), other], 11).values()) == 11


OFFERS = st.dictionaries(
    st.builds(Lane, st.sampled_from("abc"), st.integers(0, 2), st.sampled_from(["ada", "bob", "eve"])),
    st.integers(1, 300),
    max_size=20,
).map(lambda found: [Offer(lane, count, NOW) for lane, count in found.items()])


@given(OFFERS, st.integers(0, 200))
def test_nothing_is_given_twice_or_left_lying(found: list[Offer], limit: int) -> None:
    shares = share_out(found, limit)
    part = part_of_lane(len(found), limit)
    has = {each.lane: each.count if each.count < part else limit for each in found}
    assert all(0 < share <= has[lane] for lane, share in shares.items())
    assert sum(shares.values()) == min(limit, sum(has.values()))


@given(OFFERS, st.integers(1, 200))
def test_no_owner_gets_two_more_than_another_that_wants_more(found: list[Offer], limit: int) -> None:
    shares = share_out(found, limit)
    part = part_of_lane(len(found), limit)
    for priority in {each.lane.priority for each in found}:
        given: dict[str, int] = defaultdict(int)
        wants: dict[str, int] = defaultdict(int)
        for each in found:
            if each.lane.priority == priority:
                given[each.lane.owner] += shares.get(each.lane, 0)
                wants[each.lane.owner] += each.count if each.count < part else limit
        hungry = [given[owner] for owner in given if given[owner] < wants[owner]]
        assert not hungry or max(given.values()) <= min(hungry) + 1


@given(OFFERS, st.integers(1, 200))
def test_no_queue_of_an_owner_gets_two_more_than_another_that_wants_more(found: list[Offer], limit: int) -> None:
    shares = share_out(found, limit)
    part = part_of_lane(len(found), limit)
    for one in found:
        for other in found:
            same = (one.lane.owner, one.lane.priority) == (other.lane.owner, other.lane.priority)
            wants = shares.get(one.lane, 0) < (one.count if one.count < part else limit)
            if same and wants:
                assert shares.get(other.lane, 0) <= shares.get(one.lane, 0) + 1
