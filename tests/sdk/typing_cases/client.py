"""What a type checker says of the REST clients; the expected words stand behind each line.

Never run, only checked: `E:` is an error on its line, `R:` the type that `reveal_type` tells.
"""

from typing import reveal_type

from horae import AsyncClient, Client, every


def blocking(client: Client) -> None:
    reveal_type(client.jobs.get("job_1"))  # R: horae.client.models.Job
    reveal_type(client.jobs.create("demo.echo", params={"a": 1}, schedule=every("5m")))  # R: horae.client.models.Job
    reveal_type(client.jobs.list(status="paused"))  # R: typing.Iterator[horae.client.models.Job]
    reveal_type(client.jobs.batch([{"task": "demo.echo", "priority": 1}]))  # R: horae.client.models.BatchResult
    reveal_type(client.runs.get("run_1").attempts)  # R: list[horae.client.models.Attempt]
    reveal_type(client.runs.logs("run_1", follow=True))  # R: typing.Iterator[str]
    reveal_type(client.dead_letters.requeue({"task": "x"}, repeat=True))  # R: horae.client.models.Resolved
    reveal_type(client.jobs.bulk("pause", {"queue": "mail"}, dry_run=True))  # R: horae.client.models.BulkResult
    reveal_type(client.runs.bulk("cancel", ["run_1"]).done)  # R: int
    reveal_type(client.queues.update("mail", concurrency=None).paused)  # R: bool
    client.jobs.get(3)  # E: Argument 1 has incompatible type "int"; expected "str"
    client.jobs.create("demo.echo", prams={})  # E: Unexpected keyword argument "prams"; did you mean "params"?
    client.jobs.create("demo.echo", overlap="never")  # E: Argument "overlap" has incompatible type
    client.jobs.list(status="nope")  # E: Argument "status" has incompatible type
    client.jobs.batch([{"tsk": "a"}])  # E: Missing key "task" for TypedDict "NewJob"
    client.jobs.patch("job_1", priority="high")  # E: Argument "priority" has incompatible type
    client.runs.bulk("pause", {})  # E: Argument 1 has incompatible type
    client.jobs.bulk("run", {"tusk": "a"})  # E: Argument 2 has incompatible type
    client.dead_letters.discard({"tusk": "a"})  # E: Argument 1 has incompatible type


async def awaiting(client: AsyncClient) -> None:
    reveal_type(await client.jobs.upsert("nightly", "demo.echo"))  # R: horae.client.models.Job
    reveal_type(await client.tasks.list())  # R: list[horae.client.models.Task]
    reveal_type(await client.jobs.page(limit=5))  # R: horae.client.models.Page[horae.client.models.Job]
    async for event in client.events(types=["run.*"]):
        reveal_type(event.run)  # R: horae.client.models.Run | None
    for _ in client.runs.list():  # E: "AsyncIterator[Run]" has no attribute "__iter__"
        pass
