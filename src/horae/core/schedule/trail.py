"""Which schedules a recurring job had, and when: a trail that every change of the job extends.

It is what `horae check` needs to find slots that are missing from before a change.
"""

from horae.core.model import Job
from horae.core.records import PastSchedule, ScheduleTrail
from horae.core.values import replace

MOST_PAST = 50  # schedules of a job that are remembered, so that a trail stays small


def trail_of(job: Job, stored: ScheduleTrail | None) -> ScheduleTrail:
    """Return the trail of a job; it begins at the last change if that was not recorded, by an earlier release."""
    if stored is not None and stored.changed_at == job.updated_at:
        return stored
    return ScheduleTrail(
        owner=job.owner,
        job_id=job.id,
        revision=job.revision,
        changed_at=job.updated_at,
        since=job.updated_at,
        since_revision=job.revision,
    )


def extended(trail: ScheduleTrail, before: Job, after: Job) -> ScheduleTrail:
    """Return the trail with the next version of a job."""
    changed_at = after.updated_at
    trail = replace(trail, revision=after.revision, changed_at=changed_at)
    if after.schedule == before.schedule:
        return trail
    if changed_at < trail.since:  # by the clock of another node, which is a little behind: who knows what held when
        return replace(trail, since_revision=after.revision, past=())
    ended = PastSchedule(schedule=before.schedule, revision=trail.since_revision, since=trail.since, until=changed_at)
    past = (*trail.past, ended)[-MOST_PAST:]
    return replace(trail, since=changed_at, since_revision=after.revision, past=past)
