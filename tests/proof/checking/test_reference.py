"""The slots of a schedule by code that is not Horae's, and which evaluator computed them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from horae.proof.checking.history import reference
from horae.proof.checking.history.reference import ARITHMETIC, CRONSIM, OWN, micros, object_form, slots

BEGIN = datetime(2026, 3, 29, tzinfo=UTC).timestamp()  # the night of a clock change in Berlin
DAY = 86_400.0


def cron(expression: str, **options: Any) -> dict[str, Any]:
    return {"type": "cron", "expression": expression, **options}


@pytest.mark.parametrize(
    ("form", "expected", "whose"),
    [
        ({"type": "every", "seconds": 21_600, "anchor": "2026-03-28T23:00:00Z"}, [5, 11, 17, 23], ARITHMETIC),
        ({"type": "every", "seconds": 21_600, "anchor": "2026-03-29T12:00:00Z"}, [12, 18, 24], ARITHMETIC),
        (cron("0 */6 * * *"), [6, 12, 18, 24], CRONSIM),
        (cron("30 2 * * *", timezone="Europe/Berlin"), [1], CRONSIM),  # swallowed, and so right after the change
        (cron("0 */6 * * *", ends_at="2026-03-29T12:00:00Z"), [6], CRONSIM),
        (cron("0 */6 * * *", starts_at="2026-03-29T18:00:00Z"), [18, 24], CRONSIM),
        (cron("@daily"), [24], OWN),  # which cronsim does not know
        (cron("30 2 * * *", timezone="Europe/Berlin", dst={"gap": "skip"}), [], OWN),
        ({"type": "calendar", "hour": [3, 9]}, [3, 9], OWN),
    ],
)
def test_slots_are_told_with_who_says_so(form: dict[str, Any], expected: list[float], whose: str) -> None:
    told, evaluator = slots(form, BEGIN, BEGIN + DAY)
    assert ([(slot - BEGIN) / 3600 for slot in told], evaluator) == (expected, whose)


def test_without_cronsim_horae_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    form = cron("*/7 1-3 * * *", timezone="Europe/Berlin")
    by_cronsim, _ = slots(form, BEGIN, BEGIN + DAY)
    monkeypatch.setattr(reference, "has_cronsim", lambda: False)
    assert slots(form, BEGIN, BEGIN + DAY) == (by_cronsim, OWN)


def test_an_interval_in_words_has_no_anchor_of_its_own() -> None:
    assert object_form("every 5m") == {"type": "every", "seconds": 300}


def test_slots_are_equal_to_the_microsecond() -> None:
    form = {"type": "every", "seconds": 0.7 + 0.3, "anchor": "2026-03-29T00:00:00.123457Z"}
    told, _ = slots(form, BEGIN, BEGIN + 1000)
    assert [micros(slot) % 1_000_000 for slot in told] == [123_457] * len(told)
    assert len(told) == 1000
