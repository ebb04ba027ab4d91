"""The safety lines of the product, what each would be without its care, and the tests of `make test` that then fail."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

FIRING = "src/horae/core/firing.py"
RESULTS = "src/horae/core/results.py"
CLAIMING = "src/horae/engine/worker/claims.py"
FLOOR = "src/horae/engine/worker/scan_floor.py"
JANITOR = "src/horae/engine/duties/janitor.py"
POSTGRES = "src/horae/stores/postgres/statements.sql"
SQLITE = "src/horae/stores/sqlite/statements.sql"
WITHDRAWING = "src/horae/engine/worker/withdrawals.py"

ENGINE_TESTS = "tests/engine/test_engine.py"
FLOOR_TESTS = "tests/engine/test_scan_floor.py"
LIFE_TESTS = "tests/conformance/test_store_life.py"
PLAN_TESTS = "tests/conformance/test_store_plan.py"
CORE_TESTS = "tests/core/test_decisions.py"
UNANSWERED_TESTS = "tests/engine/test_unanswered.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """A line as it is, as it would be, and the tests that keep it so."""

    care: str  # what the line is for; several lines may share it
    name: str
    file: str
    line: str  # stands once in the file
    instead: str
    tests: tuple[str, ...]  # as pytest names them

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        before = (ROOT / self.file).read_text("utf-8").partition(self.line)[0]
        return f"{self.file}:{before.count(chr(10)) + 1}"

    def applied(self, source: str) -> str:
        """The file without the care."""
        assert source.count(self.line) == 1, f"{self.name}: {self.file} has its line {source.count(self.line)} times"
        return source.replace(self.line, self.instead)


def _of(tests: str, *names: str, on: str | None = None) -> tuple[str, ...]:
    return tuple(f"{tests}::{name}" if on is None else f"{tests}::{name}[{on}]" for name in names)


REVERTS = (
    # --- the fence: whoever lost a claim writes nothing
    Revert(
        care="fence",
        name="an end needs no fence on PostgreSQL",
        file=POSTGRES,
        line="runs.id BETWEEN own.id AND own.id AND runs.fence = batch.fence AND (runs.node",
        instead="runs.id BETWEEN own.id AND own.id AND (runs.node",
        tests=_of(
            LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", "test_a_batch_answers_each_item", on="postgres"
        ),
    ),
    Revert(
        care="fence",
        name="a start needs no fence on PostgreSQL",
        file=POSTGRES,
        line="""given(id, fence, attempt, progress, started_at, first_started_at)
 WHERE runs.id BETWEEN given.id AND given.id AND runs.fence = given.fence AND""",
        instead="""given(id, fence, attempt, progress, started_at, first_started_at)
 WHERE runs.id BETWEEN given.id AND given.id AND""",
        tests=_of(
            LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", "test_a_batch_answers_each_item", on="postgres"
        ),
    ),
    Revert(
        care="fence",
        name="a return needs no fence on PostgreSQL",
        file=POSTGRES,
        line="""given(id, fence, state, wake_at, attempt, crashes, progress, error, first_started_at, started_at)
 WHERE runs.id BETWEEN given.id AND given.id AND runs.fence = given.fence AND""",
        instead="""given(id, fence, state, wake_at, attempt, crashes, progress, error, first_started_at, started_at)
 WHERE runs.id BETWEEN given.id AND given.id AND""",
        tests=_of(LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", on="postgres"),
    ),
    Revert(
        care="fence",
        name="an end needs no fence on SQLite",
        file=SQLITE,
        line="""AND runs.fence = json_extract(value, '$[0]')
   AND runs.state IN""",
        instead="AND runs.state IN",
        tests=_of(LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", on="sqlite"),
    ),
    Revert(
        care="fence",
        name="a start or a return needs no fence on SQLite",
        file=SQLITE,
        line=" WHERE runs.fence = named.value;",
        instead=" WHERE true;",
        tests=_of(LIFE_TESTS, "test_a_result_with_an_old_fence_is_void", "test_a_batch_answers_each_item", on="sqlite"),
    ),
    # --- the compare-and-set of a firing: of several planners one fires a slot
    Revert(
        care="compare-and-set",
        name="whoever comes fires on PostgreSQL",
        file=POSTGRES,
        line="""jobs.revision = given.revision
   AND jobs.next_fire_at IS NOT DISTINCT FROM given.expected""",
        instead="jobs.revision = given.revision",
        tests=_of(
            PLAN_TESTS,
            "test_a_firing_is_void_when_somebody_was_first",
            "test_planners_that_race_fire_each_slot_once",
            on="postgres",
        ),
    ),
    Revert(
        care="compare-and-set",
        name="whoever comes fires on SQLite",
        file=SQLITE,
        line="WHERE id = ? AND revision = ? AND next_fire_at IS ?;",
        instead="WHERE id = ? AND revision = ? AND (next_fire_at IS ? OR true);",
        tests=_of(
            PLAN_TESTS,
            "test_a_firing_is_void_when_somebody_was_first",
            "test_planners_that_race_fire_each_slot_once",
            on="sqlite",
        ),
    ),
    # --- recovery: what nobody holds any more, or never held, is claimed in the end
    Revert(
        care="recovery",
        name="nobody returns what dead nodes held",
        file=JANITOR,
        line="returned = await self._return_orphans(now)",
        instead="returned = 0",
        tests=_of(
            ENGINE_TESTS, "TestDeath::test_runs_of_a_killed_node_start_again_without_using_up_a_retry", on="sqlite"
        ),
    ),
    Revert(
        care="recovery",
        name="what dead nodes held is not found on PostgreSQL",
        file=POSTGRES,
        line="SELECT node, last_at FROM graves WHERE NOT EXISTS (SELECT FROM nodes WHERE nodes.id = graves.node);",
        instead="SELECT node, last_at FROM graves WHERE false;",
        tests=_of(LIFE_TESTS, "test_orphans_are_the_runs_of_nodes_that_are_gone", on="postgres"),
    ),
    Revert(
        care="recovery",
        name="what dead nodes held is not found on SQLite",
        file=SQLITE,
        line=" WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = holders.node)",
        instead=" WHERE false",
        tests=_of(LIFE_TESTS, "test_orphans_are_the_runs_of_nodes_that_are_gone", on="sqlite"),
    ),
    Revert(
        care="recovery",
        name="a claim without an answer is kept for ever",
        file=WITHDRAWING,
        line="if lost := [run for run in ours if run.id not in known]:",
        instead="if lost := [run for run in ours if run.id not in known and False]:",
        tests=_of(
            UNANSWERED_TESTS,
            "test_what_was_claimed_without_an_answer_goes_back_and_runs",
            "test_what_a_node_gave_up_when_its_lease_ran_out_runs_again_although_nobody_buried_it",
            on="sqlite",
        ),
    ),
    Revert(
        care="recovery",
        name="what nobody told of is not looked for",
        file=FLOOR,
        line="self._scans = _is_past(self._scanned_at, self._scan_every, now)",
        instead="self._scans = self._scanned_at is None",
        tests=_of(FLOOR_TESTS, "test_everything_is_looked_at_now_and_then"),
    ),
    # --- a cancel is durable: it outlives whoever should obey it
    Revert(
        care="durable cancel",
        name="a stop is not written down on PostgreSQL",
        file=POSTGRES,
        line="""SET stop = CASE WHEN stop = 'cancelled' THEN stop ELSE $2 END
 WHERE id = ANY""",
        instead="""SET stop = CASE WHEN $2::text IS NULL THEN $2 ELSE stop END
 WHERE id = ANY""",
        tests=_of(LIFE_TESTS, "test_a_stop_request_reaches_the_node_that_holds_the_run", on="postgres"),
    ),
    Revert(
        care="durable cancel",
        name="a stop is not written down on SQLite",
        file=SQLITE,
        line="UPDATE runs SET stop = CASE stop WHEN 'cancelled' THEN stop ELSE :reason END",
        instead="UPDATE runs SET stop = CASE WHEN :reason IS NULL THEN :reason ELSE stop END",
        tests=_of(LIFE_TESTS, "test_a_stop_request_reaches_the_node_that_holds_the_run", on="sqlite"),
    ),
    Revert(
        care="durable cancel",
        name="a stop goes with the attempt on PostgreSQL",
        file=POSTGRES,
        line="UPDATE runs SET state = given.state, node = NULL, counted = false,",
        instead="UPDATE runs SET state = given.state, node = NULL, counted = false, stop = NULL,",
        tests=_of(LIFE_TESTS, "test_a_stop_request_survives_a_retry", on="postgres"),
    ),
    Revert(
        care="durable cancel",
        name="a stop goes with the attempt on SQLite",
        file=SQLITE,
        line="wake_at = json_extract(value, '$[8]'), node = NULL",
        instead="wake_at = json_extract(value, '$[8]'), node = NULL, stop = NULL",
        tests=_of(LIFE_TESTS, "test_a_stop_request_survives_a_retry", on="sqlite"),
    ),
    Revert(
        care="durable cancel",
        name="a stop goes with the node",
        file=RESULTS,
        line="""    if run.stop is Reason.CANCELLED:
        return cancel(replace(run, crashes=crashes), now)
    if not started:""",
        instead="    if not started:",
        tests=_of(CORE_TESTS, "TestResults::test_a_cancel_outlives_the_worker_that_should_have_confirmed_it"),
    ),
    Revert(
        care="durable cancel",
        name="a stop is not looked for in a claim",
        file=CLAIMING,
        line="if run.stop is Reason.CANCELLED:",
        instead="if run.stop is Reason.CANCELLED and draining:",
        tests=_of(
            ENGINE_TESTS,
            "TestStops::test_a_cancel_that_its_node_missed_ends_the_run_before_its_next_attempt",
            on="sqlite",
        ),
    ),
    # --- the slot advances: what was fired is not fired again
    Revert(
        care="slot advance",
        name="a firing leaves the slot open on PostgreSQL",
        file=POSTGRES,
        line="UPDATE jobs SET next_fire_at = given.next_fire_at, plan_at",
        instead="UPDATE jobs SET plan_at",
        tests=_of(PLAN_TESTS, "test_a_firing_moves_the_job_and_makes_its_runs", on="postgres"),
    ),
    Revert(
        care="slot advance",
        name="a firing leaves the slot open on SQLite",
        file=SQLITE,
        line="UPDATE jobs SET next_fire_at = ?, plan_at = ?, status = ?\n WHERE",
        instead="UPDATE jobs SET next_fire_at = coalesce(next_fire_at, ?), plan_at = ?, status = ?\n WHERE",
        tests=_of(PLAN_TESTS, "test_a_firing_moves_the_job_and_makes_its_runs", on="sqlite"),
    ),
    Revert(
        care="slot advance",
        name="a firing does not say which slot follows",
        file=FIRING,
        line="        next_fire_at=following,\n",
        instead="        next_fire_at=job.next_fire_at,\n",
        tests=_of(CORE_TESTS, "TestFiring::test_every_slot_of_the_horizon_becomes_a_run"),
    ),
)
