"""One node with every role on a real store: on time, retrying, and under its users' control."""

from tests.system import control, on_time, retrying
from tests.system.cluster import Cluster


def test_a_job_for_now_starts_within_100_ms_of_the_answer(one_node: Cluster) -> None:
    on_time.check_jobs_for_now(one_node, times=5)


def test_a_job_for_later_starts_at_its_instant(one_node: Cluster) -> None:
    on_time.check_jobs_for_later(one_node, delay=1.2, times=5)


def test_a_job_of_every_second_starts_each_second_once(one_node: Cluster) -> None:
    on_time.check_every_second(one_node, seconds=3)


def test_a_failing_run_succeeds_after_exactly_its_delays(one_node: Cluster) -> None:
    retrying.check_exact_delays(one_node, initial=0.3)
    retrying.check_handlers_see_the_delays(one_node, initial=0.2)


def test_jitter_makes_delays_up_to_a_quarter_longer(one_node: Cluster) -> None:
    retrying.check_jitter(one_node, initial=0.4, times=10)


def test_a_run_that_fails_without_end_is_given_up(one_node: Cluster) -> None:
    retrying.check_giving_up(one_node)


def test_a_timeout_counts_as_a_failed_attempt(one_node: Cluster) -> None:
    retrying.check_timeouts(one_node)


def test_a_run_that_is_cancelled_before_its_time_never_starts(one_node: Cluster) -> None:
    control.check_cancel_before_start(one_node)


def test_a_running_run_is_cancelled_within_2_s_and_leaves_nothing_behind(one_node: Cluster) -> None:
    control.check_cancel_while_running(one_node)


def test_a_pause_stops_new_runs_and_missed_decides_about_the_others(one_node: Cluster) -> None:
    control.check_pause_and_resume(one_node, pause=2)


def test_a_job_can_be_run_at_any_time(one_node: Cluster) -> None:
    control.check_run_now(one_node)


def test_a_patched_schedule_moves_the_next_run(one_node: Cluster) -> None:
    control.check_patched_schedule(one_node)


def test_overlap_does_what_it_says(one_node: Cluster) -> None:
    control.check_overlap(one_node, seconds=5)
