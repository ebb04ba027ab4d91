"""`horae size` on the command line."""

import json

import pytest

from horae.cli.app import run


def test_every_quote_has_needs_and_lines_that_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--rate", "1000", "--recurring", "10", "--peak", "4000", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["prices"]["as_of"]
    assert [quote["name"] for quote in document["quotes"]] == [
        "DynamoDB on demand + SQS",
        "DynamoDB provisioned + SQS",
        "PostgreSQL + Redis",
    ]
    for quote in document["quotes"]:
        total = sum(line["dollars"] for line in quote["lines"])
        assert quote["dollars_a_month"] == pytest.approx(total, abs=0.01 * len(quote["lines"]))
        assert all(line["arithmetic"] for line in quote["lines"])
        assert quote["needs"]


def test_people_read_the_arithmetic_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--rate", "10", "--on", "postgresql"]) == 0
    said = capsys.readouterr().out
    assert "PostgreSQL: $" in said
    assert "× 730 h × $" in said
    assert "DynamoDB" not in said


def test_figures_that_contradict_each_other_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--rate", "10", "--peak", "1"]) == 2
    assert "--peak 1 is less than the mean" in capsys.readouterr().err
