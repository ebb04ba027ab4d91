"""A task that runs in a process, with hooks."""

import os

from horae import Horae, Run

app = Horae()
_started_in: list[int] = []


@app.on("task_start")
async def note_process(run: Run) -> None:
    _started_in.append(os.getpid())


@app.on("task_failed")
def log_failure(run: Run, error: BaseException) -> None:
    run.log.info(f"failed: {error}")


@app.on("task_end")
def log_end(run: Run) -> None:
    run.log.info("ended")


@app.task("pids", cpu=True)
def pids(fail: bool = False) -> bool:
    """Return whether the hook ran in this process."""
    if fail:
        raise ValueError("wrong")
    return _started_in == [os.getpid()]
