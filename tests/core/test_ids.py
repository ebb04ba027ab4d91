"""Ids are UUIDv7, in the order of creation."""

import threading
import uuid
from datetime import UTC, datetime

from horae.core.ids import Ids, is_id


def test_ids_of_one_process_are_unique_and_sorted() -> None:
    ids = Ids()
    made = [ids() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_many_ids_at_once_are_unique_and_between_those_before_and_after() -> None:
    ids = Ids()
    made = [ids(), *ids.many(5_000), ids(), *ids.many(0), *ids.many(3)]
    assert len(made) == 5_005
    assert made == sorted(set(made))
    assert all(map(is_id, made))


def test_a_stock_of_ids_goes_on_in_their_order() -> None:
    ids = Ids()
    new_one = ids.batched(3)
    made = [ids(), *(new_one() for _ in range(10))]
    assert made == sorted(set(made))
    assert all(map(is_id, made))


def test_many_ids_at_once_grow_beyond_a_full_millisecond() -> None:
    ids = Ids(random=lambda count: b"\xff" * count, wall=lambda: 100.0)
    made = ids.many(3)
    assert made == sorted(set(made))
    assert [one[:12] for one in made] == [f"{100_001:012x}"] * 3
    assert all(map(is_id, made))


def test_an_id_is_a_uuid_of_version_7() -> None:
    known = uuid.UUID(Ids()())
    assert known.version == 7
    assert known.variant == uuid.RFC_4122


def test_ids_grow_although_the_clock_stands_still_or_goes_back() -> None:
    times = iter([100.0, 100.0, 50.0, 100.001, 99.0])
    ids = Ids(wall=lambda: next(times))
    made = [ids() for _ in range(5)]
    assert made == sorted(set(made))


def test_ids_grow_beyond_a_full_millisecond() -> None:
    ids = Ids(random=lambda count: b"\xff" * count, wall=lambda: 100.0)
    first, second = ids(), ids()
    assert first < second
    assert is_id(second)


def test_threads_never_get_the_same_id() -> None:
    ids, made = Ids(), list[str]()
    threads = [threading.Thread(target=lambda: made.extend(ids() for _ in range(5_000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20_000


def test_the_same_random_bytes_and_time_give_the_same_ids() -> None:
    def source() -> Ids:
        return Ids(random=lambda count: bytes(range(count)), wall=lambda: 1_800_000_000.5)

    one, other = source(), source()
    assert [one() for _ in range(5)] == [other() for _ in range(5)]


def test_an_id_begins_with_the_millisecond_of_its_creation() -> None:
    moment = datetime(2026, 11, 15, 23, 59, 59, 999_000, tzinfo=UTC)
    assert int(Ids(wall=moment.timestamp)()[:12], 16) == int(moment.timestamp() * 1000)


def test_the_low_bits_are_even_over_the_shards() -> None:
    ids = Ids(wall=lambda: 100.0)
    shards = [int(ids()[-2:], 16) % 64 for _ in range(6_400)]
    assert all(50 <= shards.count(shard) <= 160 for shard in range(64))


def test_other_texts_are_no_ids() -> None:
    good = Ids()()
    assert is_id(good)
    for bad in (
        "",
        good[:-1],
        good + "0",
        good.upper(),
        f"run_{good}",
        good[:12] + "4" + good[13:],
        good + "\n",
        "g" * 32,
    ):
        assert not is_id(bad)


def test_an_id_has_a_time_before_the_year_10000() -> None:
    tail = "7000800000000000000f"
    assert is_id(f"e677d21fdbff{tail}")
    assert not is_id(f"e677d21fdc00{tail}")
