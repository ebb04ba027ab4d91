"""A web application of a user: FastAPI with a whole Horae node in each server process."""

import os

from fastapi import FastAPI

from horae import Horae, Run, every
from tests.system.tasks import note

app = Horae()


@app.schedule(every(seconds=1), key="tick")
@app.task("web.tick")
async def tick(run: Run) -> None:
    """Run once a second in one of the processes."""
    note("START", run, "tick")


@app.task("web.greet")
async def greet(run: Run, name: str) -> str:
    """Run when a request submits it."""
    note("START", run, name)
    return f"hello, {name}"


horae = app.asgi(roles=("api", "planner", "worker"))
api = FastAPI(lifespan=horae.lifespan)
api.mount("/horae", horae)


@api.post("/greet/{name}")
async def submit_greeting(name: str) -> dict[str, object]:
    """Submit a job, and return its result and the process ids."""
    handle = await greet.submit(name=name)
    return {"job": handle.id, "pid": os.getpid(), "says": await handle.result(timeout=20)}
