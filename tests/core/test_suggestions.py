"""Suggestions for misspelt words: helpful, and cheap for whoever sends many of them."""

import time
from zoneinfo import available_timezones

import pytest

from horae.core.errors import InvalidSchedule
from horae.core.schedule.zone_names import check_zone_name
from horae.core.wording.suggestions import closest, did_you_mean

FIELDS = ("task", "params", "max_retries", "timeout_seconds", "start_within_seconds", "priority", "queue", "labels")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("prioritty", "priority"),
        ("priorit", "priority"),
        ("prioriyt", "priority"),
        ("pryority", "priority"),
        ("PRIORITY", "priority"),
        ("maxRetries", "max_retries"),
        ("max-retries", "max_retries"),
        ("retries", "max_retries"),
        ("timeout", "timeout_seconds"),
        ("timeuot", "timeout_seconds"),
        ("startWithin", "start_within_seconds"),
        ("label", "labels"),
        ("briorily", "priority"),
        ("labl", None),
        ("colour", None),
        ("", None),
        ("p", None),
        ("priority" * 100, None),
        ("ｐｒｉｏｒｉｔｙ", None),
    ],
)
def test_a_misspelt_word_is_recognized(word: str, meant: str | None) -> None:
    assert closest(word, FIELDS) == meant


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("berlin", "Europe/Berlin"),
        ("Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Europa/Berlin", "Europe/Berlin"),
        ("Amercia/New York", "America/New_York"),
        ("new york", "America/New_York"),
        ("Atlantis/Capital", None),
    ],
)
def test_a_misspelt_zone_is_recognized(word: str, meant: str | None) -> None:
    assert closest(word, available_timezones()) == meant


def test_what_is_no_text_has_no_suggestion() -> None:
    assert did_you_mean(7, FIELDS) == ""


def test_ten_thousand_invented_zones_are_refused_in_no_time() -> None:
    check_zone_name("UTC", "/schedule/timezone")
    began = time.process_time()
    for number in range(10_000):
        with pytest.raises(InvalidSchedule):
            check_zone_name(f"America/Argentina/Buenos_Aires_{number}_and_further_south", "/schedule/timezone")
    assert time.process_time() - began < 2
