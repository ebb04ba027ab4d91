"""Names of SQS queues."""

import re

import pytest

from horae.core.limits import MAX_PRIORITY, MIN_PRIORITY
from horae.queues.sqs.names import PriorityClass, level_of, line_name, refused_name

ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,80}")
QUEUES = ["default", "mail_out", "a__b", "_a", "a_", "a.b", "a-b", "x" * 100, "x" * 99 + "y", "x" * 60, ".", "refused"]


@pytest.mark.parametrize("prefix", ["h", "team-a", "a__b", "p" * 40])
def test_every_queue_and_class_has_an_sqs_queue_of_its_own(prefix: str) -> None:
    names = [line_name(prefix, queue, level) for queue in QUEUES for level in PriorityClass] + [refused_name(prefix)]
    assert len(set(names)) == len(names)
    assert [name for name in names if not ALLOWED.fullmatch(name)] == []


def test_a_plain_name_stays_readable() -> None:
    assert line_name("horae", "default", PriorityClass.NORMAL) == "horae__default__normal"
    assert line_name("horae", "mail.out", PriorityClass.HIGH).startswith("horae__mail-out__")


def test_a_tenant_cannot_name_a_queue_like_the_hash_of_another() -> None:
    hashed = line_name("h", "mail.out", PriorityClass.LOW)
    copied = hashed.removeprefix("h__").removesuffix("__low")
    assert line_name("h", copied, PriorityClass.LOW) != hashed


def test_installations_with_prefixes_alike_share_no_sqs_queue() -> None:
    assert line_name("a", "b_c", PriorityClass.HIGH) != line_name("a_b", "c", PriorityClass.HIGH)
    assert line_name("a", "b__c", PriorityClass.HIGH) != line_name("a__b", "c", PriorityClass.HIGH)


def test_a_priority_belongs_before_with_or_after_the_default() -> None:
    assert PriorityClass.of(MAX_PRIORITY) == PriorityClass.of(1) == PriorityClass.HIGH
    assert PriorityClass.of(0) == PriorityClass.NORMAL
    assert PriorityClass.of(MIN_PRIORITY) == PriorityClass.of(-1) == PriorityClass.LOW


def test_the_class_is_read_from_the_name() -> None:
    assert [level_of(line_name("h", "q", level)) for level in PriorityClass] == list(PriorityClass)
    assert level_of(refused_name("h")) is None
    assert level_of("somebody-else") is None
