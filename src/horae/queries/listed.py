"""Jobs and runs as lists and events carry them: without values that are too large for that."""

from horae.core.model import Job, Run, Spec
from horae.core.values import replace

MAX_LISTED = 16_384  # characters of a value in a list; a larger one is read with its job or run

Omitted = tuple[str, ...]  # the names of the values that were left out


def listed_run(run: Run) -> tuple[Run, Omitted]:
    """Return a run for a list, and the names of what was left out of it."""
    spec, omitted = _listed_spec(run.spec)
    if run.result is not None and len(run.result) > MAX_LISTED:
        return replace(run, spec=spec, result=None), (*omitted, "result")
    return (replace(run, spec=spec) if omitted else run), omitted


def listed_job(job: Job) -> Job:
    """Return a job for a list, without large parameters."""
    spec, omitted = _listed_spec(job.spec)
    run = None if job.run is None else listed_run(job.run)[0]
    return replace(job, spec=spec, run=run) if omitted or run is not job.run else job


def listed_params(spec: Spec) -> str | None:
    """Return the parameters for a list; None when they are too large."""
    return None if spec.params_blob is not None or len(spec.params) > MAX_LISTED else spec.params


def _listed_spec(spec: Spec) -> tuple[Spec, Omitted]:
    if listed_params(spec) is not None:
        return spec, ()
    return replace(spec, params="{}", params_blob=None), ("params",)
