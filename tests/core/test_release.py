"""Whether a claimed run starts, waits in its gate or is skipped."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.decisions.new_runs import manual_run
from horae.core.decisions.release import Rival, Verdict, gate_of, is_key_gate, key_gate, overlap_is_open, release
from horae.core.decisions.results import give_back, lost
from horae.core.model import JobId, Overlap, Policy, RunId, Spec, State, Trigger
from horae.core.values import replace
from tests.core.builders import JOB, NOON, a_job, a_run, new_id

NAMES = st.text(alphabet=":#1ab", min_size=1, max_size=8) | st.text(min_size=1, max_size=20)


def rival(started_at: datetime | None, job_id: JobId = JOB) -> Rival:
    return Rival(id=RunId(new_id()), job_id=job_id, started_at=started_at)


class TestRelease:
    EARLIER = NOON - timedelta(seconds=1)
    OTHER = JobId("b" * 32)

    def verdict(self, overlap: Overlap, *rivals: Rival, **changes: object) -> Verdict:
        run = a_run(State.CLAIMED, spec=Spec(task="demo.echo", policy=Policy(overlap=overlap)), **changes)
        return release(run, rivals, NOON)

    def test_nobody_ahead_means_go(self) -> None:
        assert self.verdict(Overlap.SKIP) is Verdict.START

    def test_a_slot_that_comes_due_while_its_job_is_going_is_skipped(self) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER)) is Verdict.OVERLAP

    def test_buffer_one_keeps_the_first_and_skips_the_next(self) -> None:
        assert self.verdict(Overlap.BUFFER_ONE, rival(self.EARLIER)) is Verdict.WAIT
        assert self.verdict(Overlap.BUFFER_ONE, rival(self.EARLIER), rival(None)) is Verdict.OVERLAP

    def test_late_runs_do_not_overlap_one_another_they_follow(self) -> None:
        later = NOON + timedelta(minutes=5)
        assert self.verdict(Overlap.SKIP, rival(later), rival(None)) is Verdict.WAIT
        assert self.verdict(Overlap.BUFFER_ONE, rival(later), rival(None)) is Verdict.WAIT

    @pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.BACKFILL, Trigger.REQUEUE])
    def test_only_slots_of_the_schedule_are_skipped_for_overlap(self, trigger: Trigger) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER), trigger=trigger) is Verdict.WAIT

    def test_a_retry_is_never_skipped(self) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER), attempt=1) is Verdict.WAIT

    def test_overlap_is_open_while_the_start_of_a_rival_is_not_known(self) -> None:
        run = a_run()
        assert overlap_is_open(run, [rival(None)])
        assert not overlap_is_open(run, [rival(NOON)])
        assert not overlap_is_open(run, [rival(None, self.OTHER)])
        assert not overlap_is_open(replace(run, trigger=Trigger.MANUAL), [rival(None)])

    def test_another_job_of_the_same_ordering_key_is_waited_for(self) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER, self.OTHER)) is Verdict.WAIT
        assert self.verdict(Overlap.ALLOW, rival(self.EARLIER)) is Verdict.WAIT

    def test_a_first_start_after_its_window_is_too_late(self) -> None:
        policy = Policy(start_within=timedelta(seconds=10))
        run = a_run(State.CLAIMED, spec=Spec(task="demo.echo", policy=policy))
        assert release(run, (), NOON + timedelta(seconds=10)) is Verdict.START
        assert release(run, (), NOON + timedelta(seconds=11)) is Verdict.TOO_LATE
        assert release(replace(run, attempt=1), (), NOON + timedelta(hours=1)) is Verdict.START

    def test_a_run_that_started_in_time_and_was_given_back_starts_again_however_late(self) -> None:
        policy = Policy(start_within=timedelta(seconds=10))
        begun = replace(
            a_run(State.CLAIMED, spec=Spec(task="demo.echo", policy=policy)), attempt=1, state=State.RUNNING
        )
        for returned in (give_back, lost):
            run = returned(replace(begun, first_started_at=NOON, started_at=NOON), NOON + timedelta(seconds=30)).run
            assert run.attempt == 0
            assert release(run, (), NOON + timedelta(seconds=31)) is Verdict.START
            assert release(run, [rival(NOON)], NOON + timedelta(seconds=31)) is Verdict.WAIT


class TestGates:
    def test_an_ordering_key_is_the_gate_of_its_owner(self) -> None:
        spec = Spec(task="t", ordering_key="user-42")
        assert gate_of(spec, JOB, "ann", recurring=False) != gate_of(spec, JOB, "bob", recurring=False)
        assert gate_of(spec, JOB, "ann", recurring=True) == gate_of(spec, JobId("c" * 32), "ann", recurring=False)

    def test_owners_with_colons_share_no_gate_with_keys_that_have_them(self) -> None:
        assert key_gate("acme", "billing:invoices") != key_gate("acme:billing", "invoices")

    @given(pairs=st.lists(st.tuples(NAMES, NAMES), min_size=2, max_size=2, unique=True))
    def test_no_two_ordering_keys_share_a_gate(self, pairs: list[tuple[str, str]]) -> None:
        one, other = (key_gate(owner, key) for owner, key in pairs)
        assert one != other
        assert is_key_gate(one)

    @given(owner=NAMES.filter(lambda name: ":" not in name), key=NAMES)
    def test_runs_of_earlier_releases_keep_their_gate(self, owner: str, key: str) -> None:
        assert key_gate(owner, key) == f"key:{owner}:{key}"

    def test_a_recurring_job_is_its_own_gate_unless_overlap_is_allowed(self) -> None:
        assert gate_of(Spec(task="t"), JOB, "ann", recurring=True) == f"job:{JOB}"
        allowing = Spec(task="t", policy=Policy(overlap=Overlap.ALLOW))
        assert gate_of(allowing, JOB, "ann", recurring=True) is None
        assert gate_of(Spec(task="t"), JOB, "ann", recurring=False) is None

    def test_a_manual_run_passes_the_gate_of_its_job(self) -> None:
        run = manual_run(a_job(), now=NOON, new_id=new_id)
        assert (run.gate, run.trigger, run.due_at) == (f"job:{JOB}", Trigger.MANUAL, NOON)
