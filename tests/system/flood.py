"""A client that sends as much as it can, in its own process: `python -m tests.system.flood URL TOKEN ...`."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.system.cluster import REPOSITORY

JOB = {"task": "demo.echo", "schedule": "2099-01-01T00:00:00Z"}
PAUSE_SECONDS = 0.2  # after a connection was refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers of a flood, by status."""

    statuses: Counter[str]  # and `lost` where there was no answer
    unhelpful: int  # refusals that did not say when to come again

    @property
    def refused(self) -> int:
        return self.statuses["429"] + self.statuses["503"]


@contextmanager
def flooding(url: str, token: str, *, connections: int, seconds: float, size: int = 0) -> Iterator["list[Answers]"]:
    """Flood a server during the `with`; at the end the list has the answers.

    With `size` each request is a batch of so many bytes, else a job.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.system.flood", url, token, str(connections), str(seconds), str(size)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        text=True,
    )
    answers: list[Answers] = []
    try:
        yield answers
        output, _ = process.communicate(timeout=seconds + 60)
        assert process.returncode == 0
        result = json.loads(output)
        answers.append(Answers(statuses=Counter(result["statuses"]), unhelpful=result["unhelpful"]))
    finally:
        process.kill()
        process.wait()


class Flood:
    """Many connections that each send a request as soon as the last is answered."""

    def __init__(self, url: str, token: str, size: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._place = (parts.hostname, parts.port)
        many = [{**JOB, "params": {"message": "x" * 6_000}}] * (size // 6_200)
        path, body = ("/v1/jobs/batch", {"jobs": many}) if many else ("/v1/jobs", JOB)
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._request = head.encode() + data
        self.statuses: Counter[str] = Counter()
        self.unhelpful = 0

    async def go_on(self, until: float) -> None:
        """Send requests on one connection after another."""
        clock = asyncio.get_running_loop().time
        while clock() < until:
            try:
                reader, writer = await asyncio.open_connection(*self._place)
            except OSError:
                self.statuses["lost"] += 1
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            try:
                while clock() < until and await self._ask(reader, writer):
                    pass
            except (OSError, asyncio.IncompleteReadError):
                self.statuses["lost"] += 1
            finally:
                writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one request; return whether the connection can be reused."""
        writer.write(self._request)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        status = head.split()[1].decode()
        self.statuses[status] += 1
        self.unhelpful += status in ("429", "503") and b"retry-after: " not in head
        return b"connection: close" not in head


async def main() -> None:
    """Flood a server, and print the answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("size", type=int)
    given = parser.parse_args()
    flood = Flood(given.url, given.token, given.size)
    until = asyncio.get_running_loop().time() + given.seconds
    await asyncio.gather(*(flood.go_on(until) for _ in range(given.connections)))
    sys.stdout.write(json.dumps({"statuses": flood.statuses, "unhelpful": flood.unhelpful}))


if __name__ == "__main__":
    asyncio.run(main())
