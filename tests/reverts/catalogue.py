"""The safety lines of the product, how each is taken out, and the tests of `make test` that must fail without it."""

from dataclasses import dataclass

from tests.reverts.python_edits import Function, ignore_if, replace_argument, replace_call
from tests.reverts.sql_edits import Statement, always, clear, keep, never

ENGINE_TESTS = "tests/engine/test_engine.py"
FLOOR_TESTS = "tests/engine/test_scan_floor.py"
LIFE_TESTS = "tests/conformance/test_store_life.py"
PLAN_TESTS = "tests/conformance/test_store_plan.py"
RESULT_TESTS = "tests/core/test_results.py"
FIRING_TESTS = "tests/core/test_firing.py"
UNANSWERED_TESTS = "tests/engine/test_unanswered.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """A safety line without which the named tests fail."""

    protects: str  # the property that the line keeps; several lines may keep one
    name: str
    change: Statement | Function
    tests: tuple[str, ...]  # as pytest names them


def _of(tests: str, *names: str, on: str | None = None) -> tuple[str, ...]:
    return tuple(f"{tests}::{name}" if on is None else f"{tests}::{name}[{on}]" for name in names)


REVERTS = (
    # --- fence: a worker that lost its claim writes nothing
    Revert(
        protects="fence",
        name="a run ends without its fence being compared on PostgreSQL",
        change=Statement("postgres", "end_runs", always("fence", "=")),
        tests=_of(
            LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", "test_a_batch_answers_each_item", on="postgres"
        ),
    ),
    Revert(
        protects="fence",
        name="a run starts without its fence being compared on PostgreSQL",
        change=Statement("postgres", "start_runs", always("fence", "=")),
        tests=_of(
            LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", "test_a_batch_answers_each_item", on="postgres"
        ),
    ),
    Revert(
        protects="fence",
        name="a run is returned without its fence being compared on PostgreSQL",
        change=Statement("postgres", "return_runs", always("fence", "=")),
        tests=_of(LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", on="postgres"),
    ),
    Revert(
        protects="fence",
        name="a run ends without its fence being compared on SQLite",
        change=Statement("sqlite", "end_runs", always("fence", "=")),
        tests=_of(LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", on="sqlite"),
    ),
    Revert(
        protects="fence",
        name="a run starts or is returned without its fence being compared on SQLite",
        change=Statement("sqlite", "runs_by_fence", always("fence", "=")),
        tests=_of(LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", "test_a_batch_answers_each_item", on="sqlite"),
    ),
    # --- compare-and-set: of several planners, one fires a slot
    Revert(
        protects="compare-and-set",
        name="a slot fires although another planner has fired it",
        change=Function("horae.core.changes", "_check", replace_call("get", "jobs", by="guard")),
        tests=tuple(
            test
            for store in ("sqlite", "postgres")
            for test in _of(
                PLAN_TESTS,
                "test_a_firing_is_void_when_somebody_was_first",
                "test_planners_that_race_fire_each_slot_once",
                on=store,
            )
        ),
    ),
    # --- recovery: runs that no live node holds are claimed again
    Revert(
        protects="recovery",
        name="runs of dead nodes are not returned",
        change=Function("horae.engine.duties.janitor", "_sweep", replace_call("_return_orphans", by="0")),
        tests=_of(
            ENGINE_TESTS, "TestDeath::test_runs_of_a_killed_node_start_again_without_using_up_a_retry", on="sqlite"
        ),
    ),
    Revert(
        protects="recovery",
        name="runs of dead nodes are not found on PostgreSQL",
        change=Statement("postgres", "dead_nodes", never("not", "exists", "nodes")),
        tests=_of(LIFE_TESTS, "test_orphans_are_the_runs_of_nodes_that_are_gone", on="postgres"),
    ),
    Revert(
        protects="recovery",
        name="runs of dead nodes are not found on SQLite",
        change=Statement("sqlite", "orphans", never("not", "exists", "nodes")),
        tests=_of(LIFE_TESTS, "test_orphans_are_the_runs_of_nodes_that_are_gone", on="sqlite"),
    ),
    Revert(
        protects="recovery",
        name="runs of an unanswered claim are not returned",
        change=Function("horae.engine.worker.reconcile", "return_unknown", ignore_if("ours", "known")),
        tests=_of(
            UNANSWERED_TESTS,
            "test_what_was_claimed_without_an_answer_goes_back_and_runs",
            "test_what_a_node_gave_up_when_its_lease_ran_out_runs_again_although_nobody_buried_it",
            on="sqlite",
        ),
    ),
    Revert(
        protects="recovery",
        name="full scans are not repeated",
        change=Function(
            "horae.engine.worker.scan_floor",
            "send",
            replace_call("_is_past", "_scanned_at", by="self._scanned_at is None"),
        ),
        tests=_of(FLOOR_TESTS, "test_everything_is_looked_at_now_and_then"),
    ),
    # --- durable cancel: it outlives the attempt and the node that should obey it
    Revert(
        protects="durable cancel",
        name="a stop request is not stored on PostgreSQL",
        change=Statement("postgres", "set_stops", keep("stop")),
        tests=_of(LIFE_TESTS, "test_a_stop_request_reaches_the_node_that_holds_the_run", on="postgres"),
    ),
    Revert(
        protects="durable cancel",
        name="a stop request is not stored on SQLite",
        change=Statement("sqlite", "set_stops", keep("stop")),
        tests=_of(LIFE_TESTS, "test_a_stop_request_reaches_the_node_that_holds_the_run", on="sqlite"),
    ),
    Revert(
        protects="durable cancel",
        name="a stop request is deleted with the attempt on PostgreSQL",
        change=Statement("postgres", "return_runs", clear("stop")),
        tests=_of(LIFE_TESTS, "test_a_stop_request_survives_a_retry", on="postgres"),
    ),
    Revert(
        protects="durable cancel",
        name="a stop request is deleted with the attempt on SQLite",
        change=Statement("sqlite", "return_runs", clear("stop")),
        tests=_of(LIFE_TESTS, "test_a_stop_request_survives_a_retry", on="sqlite"),
    ),
    Revert(
        protects="durable cancel",
        name="a cancel is forgotten when the node dies",
        change=Function("horae.core.decisions.results", "lost", ignore_if("stop", "CANCELLED")),
        tests=_of(RESULT_TESTS, "TestResults::test_a_cancel_outlives_the_worker_that_should_have_confirmed_it"),
    ),
    Revert(
        protects="durable cancel",
        name="a claimed run starts although it is cancelled",
        change=Function("horae.engine.worker.claims", "_hold", ignore_if("stop", "CANCELLED")),
        tests=_of(
            ENGINE_TESTS,
            "TestStops::test_a_cancel_that_its_node_missed_ends_the_run_before_its_next_attempt",
            on="sqlite",
        ),
    ),
    # --- slot advance: a fired slot is not fired again
    Revert(
        protects="slot advance",
        name="a firing does not move the job to its next slot on PostgreSQL",
        change=Statement("postgres", "move_jobs", never("ctid")),
        tests=_of(PLAN_TESTS, "test_a_firing_moves_the_job_and_makes_its_runs", on="postgres"),
    ),
    Revert(
        protects="slot advance",
        name="a firing does not move the job to its next slot on SQLite",
        change=Statement("sqlite", "move_jobs", keep("next_fire_at")),
        tests=_of(PLAN_TESTS, "test_a_firing_moves_the_job_and_makes_its_runs", on="sqlite"),
    ),
    Revert(
        protects="slot advance",
        name="a firing names its own slot as the next",
        change=Function(
            "horae.core.decisions.firing",
            "fire",
            replace_argument("Firing", "next_fire_at", beside=("runs", "backfill"), by="job.next_fire_at"),
        ),
        tests=_of(FIRING_TESTS, "TestFiring::test_every_slot_of_the_horizon_becomes_a_run"),
    ),
)
