"""One node with every role on a real store: punctuality, retries, and control by users."""

from functools import partial

from tests.system import control, on_time, retrying
from tests.system.cluster import Cluster


def test_a_job_for_now_starts_within_100_ms_of_the_answer(one_node: Cluster) -> None:
    on_time.check_jobs_for_now(one_node, times=5)


def test_a_job_for_later_starts_at_its_instant(one_node: Cluster) -> None:
    on_time.check_jobs_for_later(one_node, delay=1.2, times=5)


def test_a_job_of_every_second_starts_each_second_once(one_node: Cluster) -> None:
    on_time.check_every_second(one_node, seconds=3)


def test_retries_come_after_the_right_delays_and_end(one_node: Cluster) -> None:
    one_node.at_once(
        partial(retrying.check_exact_delays, initial=0.3),
        partial(retrying.check_handlers_see_the_delays, initial=0.3),
        partial(retrying.check_jitter, initial=0.5, times=10),
        retrying.check_giving_up,
        retrying.check_timeouts,
    )


def test_a_running_run_is_cancelled_within_2_s_and_leaves_nothing_behind(one_node: Cluster) -> None:
    control.check_cancel_while_running(one_node)


def test_users_stay_in_control_of_what_waits_and_overlap_does_what_it_says(one_node: Cluster) -> None:
    one_node.at_once(
        control.check_cancel_before_start,
        partial(control.check_pause_and_resume, pause=2),
        control.check_run_now,
        control.check_patched_schedule,
        partial(control.check_overlap, seconds=5),
    )
