"""An evening on call, by the command line alone and in 80 columns; docs/operations/on-call.md shows its screens."""

import asyncio
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from tests.cli.on_call import COLUMNS, EVENING, FAILING, PAGE, WAITING, Screen, agree, asked, filled, play, shop, typed
from tests.live import Live
from tests.postgres_server import postgres_url, scratch_schema

Evening = tuple[Live, dict[str, Screen]]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.acceptance)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store')}/horae.db"
        return
    schema = scratch_schema(postgres_url())
    with asyncio.Runner() as runner:
        yield runner.run(schema.__aenter__())
        runner.run(schema.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def evening(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evening]:
    with shop(tmp_path_factory.mktemp("shop"), HORAE_STORE=store) as live:
        yield live, play(live)


def test_every_screen_fits_a_terminal_of_80_columns(evening: Evening) -> None:
    _, screens = evening
    for screen in screens.values():
        assert [line for line in screen.text.splitlines() if cell_len(line) > COLUMNS] == [], screen.name


def test_the_operator_finds_what_fails_and_why(evening: Evening) -> None:
    _, screens = evening
    assert screens["failed"].shown.count("run_") == FAILING
    assert f" {FAILING}  mail.receipt  LookupError: there is no" in screens["groups"].shown
    assert "'template': 'reciept'" in screens["letter"].shown.replace('"', "'")
    assert "template reciept" in screens["log"].shown


def test_the_operator_stops_the_queue_and_lets_it_go_on(evening: Evening) -> None:
    live, screens = evening
    assert (screens["pause"].code, screens["resume"].code, screens["top"].code) == (0, 0, 0)
    assert "mail" in screens["top"].shown
    [queue] = [queue for queue in asked(live, "/v1/queues") if queue["name"] == "mail"]
    assert not queue["paused"]


def test_the_operator_mends_one_letter_and_requeues_all_alike(evening: Evening) -> None:
    live, screens = evening
    assert (screens["mend"].code, "succeeded: sent the receipt" in screens["mend"].shown) == (0, True)
    assert screens["alike"].shown == f"requeued  {FAILING - 1} dead letters\n"
    assert screens["after"].shown == "no dead letters\n"
    assert len(asked(live, "/v1/runs", trigger="requeue", limit=100)) == FAILING


def test_the_operator_cancels_a_thousand_by_a_filter(evening: Evening) -> None:
    live, screens = evening
    assert screens["count"].shown == f"would cancel  {WAITING:,} jobs\n"
    assert (screens["cancel"].code, screens["cancel"].shown) == (0, f"cancelled  {WAITING:,} jobs\n")
    assert asked(live, "/v1/jobs", label="campaign:spring", status="scheduled") == []


def test_the_history_keeps_every_promise_after_the_evening(evening: Evening, store: str) -> None:
    live, _ = evening
    checked = typed(live, f"horae check --store '{store}'")
    assert checked.returncode == 0, checked.stdout


def test_the_page_shows_the_screens_of_the_evening(evening: Evening) -> None:
    page = PAGE.read_text("utf-8")
    assert [step.name for step in EVENING if f"<!-- screen: {step.name} -->" not in page] == []
    again = filled(page, evening[1])
    assert agree(page, again), f"run `python docs/make_on_call.py`:\n{again}"
