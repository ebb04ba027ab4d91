"""Follows runs to their end: their log on stdout; on stderr each step, why they wait, and the last attempt's error."""

import time
from collections.abc import Callable
from threading import Thread

from horae.cli.client import CommandClient, Document
from horae.cli.output import in_local_time, one_line, print_note, print_text
from horae.core.errors import HoraeError

FINAL = ("succeeded", "failed", "cancelled", "skipped")
POLL_SECONDS = 0.2
ASK_AFTER_SECONDS = 1.0  # how long a run waits before the reason is asked for; most start at once
ASK_EVERY_SECONDS = 2.0
LAST_LINES_SECONDS = 10.0  # how long to wait for the end of the log after the end of the run


class Steps:
    """Prints the steps of a run, each once, and while it waits the reason."""

    def __init__(self, client: CommandClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._step = ""
        self._reason = ""
        self._ask_at = 0.0

    def show(self, run: Document) -> None:
        """Print what is new about a run since the last call."""
        step = _step(run)
        if step != self._step:
            print_note(f"{run['id']} {step}")
            self._step, self._ask_at = step, self._clock() + ASK_AFTER_SECONDS
        if run["status"] not in (*FINAL, "running") and self._clock() >= self._ask_at:
            self._ask_at = self._clock() + ASK_EVERY_SECONDS
            self.explain(run["id"])

    def explain(self, run_id: str) -> None:
        """Print why a run has not started, unless that was the last thing said."""
        found = self._client.get(f"/v1/runs/{run_id}/why")
        if found["detail"] != self._reason and found["reason"] not in ("started", "ended"):
            self._reason = found["detail"]
            print_note(f"{run_id} waits: {in_local_time(self._reason)}")


def follow(client: CommandClient, run_id: str, *, with_log: bool) -> Document:
    """Wait until a run ends, and return it."""
    log = Thread(target=_print_log, args=(run_id,), daemon=True)  # a daemon, so that Ctrl-C ends it, too
    steps = Steps(client)
    try:
        run = client.get(f"/v1/runs/{run_id}")  # before the log, so that one that is not there is told once
        if with_log:
            log.start()
        while run["status"] not in FINAL:
            steps.show(run)
            time.sleep(POLL_SECONDS)
            run = client.get(f"/v1/runs/{run_id}")
    except KeyboardInterrupt:
        print_note(f"the run continues; stop it with `horae runs cancel {run_id}`")
        raise
    if with_log:
        log.join(LAST_LINES_SECONDS)
    steps.show(run)
    ended: Document = run
    return ended


def error_words(error: Document | None) -> str:
    """Return an error as its type and message; empty without one."""
    return f"{error['type']}: {error['message']}" if error else ""


def _print_log(run_id: str) -> None:
    """Print the log as it is written, in a thread, which has nobody else to tell what goes wrong."""
    try:
        with CommandClient() as client:
            for line in client.runs.logs(run_id, follow=True):
                print_text(line, flush=True)
    except HoraeError as error:
        print_note(f"the log ends here: {error}; `horae runs logs {run_id}` prints all of it")


def _step(run: Document) -> str:
    words: str = run["status"]
    if run["status"] == "running" and run["attempt"] > 1:
        words += f" (attempt {run['attempt']})"
    if run["status"] == "running" and run.get("progress") is not None:
        words += f", {int(run['progress'] * 10)}0%"  # in steps of ten, because each is a line
    if run["status"] == "retrying":
        words += f" after attempt {run['attempt']}"
    if run["status"] in ("failed", "retrying") and run.get("error"):
        words += f": {error_words(run['error'])}"
    if run["status"] == "skipped" and run.get("reason"):
        words += f": {run['reason']}"
    if run["status"] == "succeeded" and run.get("result") is not None:
        words += f": {one_line(run['result'])}"
    return words
