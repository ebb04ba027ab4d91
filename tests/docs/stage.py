"""Runs the blocks of a page in a folder with a live Horae, a shell, a Python session, and what the page starts."""

import asyncio
import json
import re
import secrets
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import httpx2
import pytest
import yaml

from horae.config import load_settings
from tests.docs.pages import Block
from tests.live import Live, free_port, live_horae
from tests.postgres_server import postgres_binaries, postgres_url

DEV_URL = "http://127.0.0.1:8765"
DATABASE = "://horae@db.example.com/horae"  # the database in the pages; replaced by one on the test server
DJANGO_DATABASE = '"NAME": "horae", "USER": "horae", "HOST": "db.example.com"'  # the same in settings of Django
WEB_PORT = "8000"  # the port of a web application in the pages; replaced by a free one
EXPORTED = ".exported"  # a file with the variables that were exported so far
READY = re.compile(r'"event": "ready"|Application startup complete')
PYTEST_OPTIONS = "-p no:cacheprovider -p no:schemathesis"  # the same plugins as in this repository
WITHIN = 60.0  # seconds for one block
REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+)")


class Stage:
    """Runs the blocks of one page in order, and keeps the output of the last one."""

    def __init__(self, live: Live, *, databases: ExitStack, processes: ExitStack) -> None:
        self.live = live
        self.printed = ""
        self._databases = databases
        self._processes = processes
        self._environment = live.environment | {"PYTEST_ADDOPTS": PYTEST_OPTIONS}
        self._environment.pop("COLUMNS", None)  # xdist sets it to 80 in its workers; in a pipe, lines are not cut
        self._url = live.url
        self._web_port = str(free_port())
        (live.folder / EXPORTED).touch()

    def play(self, block: Block) -> None:
        """Run a block, or compare it with the last output; raises AssertionError."""
        if not block.is_run:
            _check_unrun(block)
            return
        block = replace(block, text=self._localized(block))
        if block.is_file:
            assert block.note is not None
            (self.live.folder / block.note).write_text(block.text)
            _check_file(block, self.live.folder / block.note)
            return
        match block.language, block.note:
            case "sh", None:
                self._shell(block)
            case "sh", "another terminal":
                self._open_terminals(block)
            case "python", None:
                self._python(block)
            case "text", None:
                compare(block.text, self.printed)
            case "json", "answer":
                compare_json(json.loads(block.text), json.loads(self.printed), block.place)
            case "json", str(note) if request := REQUEST.fullmatch(note):
                self._send(block, request[1], request[2])
            case "json", None:
                json.loads(block.text)
            case "js", None:
                self._javascript(block)
            case "sql", None:
                _administer(block.text)
            case language, note:
                raise AssertionError(f"{block.place}: there is no way to run {language} ({note})")

    # --- ways to run a block

    def _shell(self, block: Block) -> None:
        script = f"set -euo pipefail\n. ./{EXPORTED}\n{block.text}\nexport -p >{EXPORTED}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.live.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN,
        )
        assert done.returncode == 0, f"{block.place} ended with {done.returncode}:\n{block.text}\n{done.stdout}"
        self.printed = done.stdout

    def _open_terminals(self, block: Block) -> None:
        """Start each line as a command that keeps running; later requests go to the last one that serves the API."""
        for line in filter(str.strip, block.text.splitlines()):
            port = str(free_port())
            self._processes.enter_context(self._started(line, block.place, port))
            if re.match(r"horae (serve|dev)", line) and "--roles worker" not in line:
                self._url = f"http://127.0.0.1:{port}"
                with (self.live.folder / EXPORTED).open("a") as exported:
                    exported.write(f"export HORAE_URL={self._url}\n")

    @contextmanager
    def _started(self, command: str, place: str, port: str) -> Iterator[None]:
        log = self.live.folder / f"terminal-{port}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f". ./{EXPORTED}\nexport HORAE_PORT={port}\nexec {command}"],
                cwd=self.live.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            deadline = time.monotonic() + WITHIN
            while READY.search(output_so_far := log.read_text("utf-8", "replace")) is None:
                assert process.poll() is None, f"{place}: {command} ended by itself:\n{output_so_far}"
                assert time.monotonic() < deadline, f"{place}: {command} is not ready:\n{output_so_far}"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(WITHIN)

    def _python(self, block: Block) -> None:
        session = self._session
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(json.dumps({"code": block.text, "place": block.place}) + "\n")
        session.stdin.flush()
        answer = json.loads(session.stdout.readline() or '{"failed": true, "printed": "the session died"}')
        assert not answer["failed"], f"{block.place}:\n{block.text}\n{answer['printed']}"
        self.printed = answer["printed"]

    @cached_property
    def _session(self) -> "subprocess.Popen[str]":
        program = Path(__file__).with_name("session.py")
        process = subprocess.Popen(
            [sys.executable, program],
            cwd=self.live.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.callback(_end_session, process)
        return process

    def _send(self, block: Block, method: str, path: str) -> None:
        """Send a block as a body; {id} stands for the last job or run id in the output."""
        kind = "run" if path.startswith("/v1/runs") else "job"
        known = re.search(rf"{kind}_[0-9a-f]{{32}}" if "{id}" in path else "", self.printed)
        assert known is not None, f"{block.place}: there is no id for {path}"
        url = self._url + path.replace("{id}", known[0])
        with httpx2.Client(trust_env=False, timeout=WITHIN) as client:
            answer = client.request(method, url, json=json.loads(block.text))
        assert answer.is_success, f"{block.place}: {answer.status_code}\n{answer.text}"
        self.printed = answer.text

    def _javascript(self, block: Block) -> None:
        if (node := shutil.which("node")) is None:
            pytest.skip(f"{block.place} needs Node.js; everything above it passed")
        done = subprocess.run(
            [node, "--input-type=module", "--eval", block.text],
            cwd=self.live.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN,
        )
        assert done.returncode == 0, f"{block.place}:\n{done.stdout}"
        self.printed = done.stdout

    # --- names in the pages that stand for something else in a test

    def _localized(self, block: Block) -> str:
        text = block.text.replace(DEV_URL, self._url).replace(WEB_PORT, self._web_port)
        if DJANGO_DATABASE in text:
            text = text.replace(DJANGO_DATABASE, _for_django(self._database))
        return text.replace(DATABASE, self._database.removeprefix("postgresql")) if DATABASE in text else text

    @cached_property
    def _database(self) -> str:
        """Create a database for this page on the test server, and put the programs of PostgreSQL on the path."""
        name = f"docs_{secrets.token_hex(6)}"
        asyncio.run(_execute_all([f"CREATE DATABASE {name}"]))
        self._databases.callback(lambda: asyncio.run(_execute_all([f"DROP DATABASE {name} WITH (FORCE)"])))
        with (self.live.folder / EXPORTED).open("a") as exported:
            exported.write(f'export PATH="{postgres_binaries()}:$PATH"\n')
        return urlsplit(postgres_url())._replace(path=f"/{name}").geturl()


@contextmanager
def opened_stage(folder: Path) -> Iterator[Stage]:
    """Open a stage with `horae dev` on SQLite, as readers have it."""
    with live_horae(folder, "dev") as live, ExitStack() as databases, ExitStack() as processes:
        yield Stage(live, databases=databases, processes=processes)


def compare(expected: str, printed: str) -> None:
    """Assert that each expected line was printed, in this order; `…` matches anything, and blanks are ignored."""
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
        pattern = r"\s*" + r"\s*.*?\s*".join(parts) + r"\s*"
        assert any(re.fullmatch(pattern, candidate) for candidate in lines), f"no line {line!r} in order in:\n{printed}"


def compare_json(expected: Any, actual: Any, place: str) -> None:
    """Assert that everything expected is in the actual value, which may have more fields."""
    if expected == "…":
        return
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping), f"{place}: {actual!r} is no object"
        assert not (missing := expected.keys() - actual.keys()), f"{place}: {missing} is not in {actual!r}"
        for name, value in expected.items():
            compare_json(value, actual[name], f"{place}/{name}")
    elif isinstance(expected, list):
        assert len(actual) >= len(expected), f"{place}: {actual!r} is shorter"
        for number, value in enumerate(expected):
            compare_json(value, actual[number], f"{place}/{number}")
    elif isinstance(expected, str) and "…" in expected:
        pattern = ".*".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(pattern, actual), f"{place}: {actual!r} is not {expected!r}"
    else:
        assert actual == expected, f"{place}: {actual!r} is not {expected!r}"


def _for_django(address: str) -> str:
    """Return an address as entries of Django's setting DATABASES."""
    parts = urlsplit(address)
    [host] = parse_qs(parts.query).get("host", [parts.hostname])
    return f'"NAME": "{parts.path[1:]}", "USER": "{parts.username}", "HOST": "{host}"'


def _check_file(block: Block, path: Path) -> None:
    match block.language:
        case "python":
            compile(block.text, block.place, "exec")
        case "toml":
            tomllib.loads(block.text)
            if path.name == "horae.toml":
                load_settings(environ={}, file=path)
        case "yaml":
            yaml.safe_load(block.text)
        case "json":
            for line in block.text.splitlines() if path.suffix == ".ndjson" else [block.text]:
                json.loads(line)
        case _:
            raise AssertionError(f"{block.place}: there is no check for files like {path.name}")


def _check_unrun(block: Block) -> None:
    """Check the syntax of a block that cannot be run, where that is possible."""
    match block.language:
        case "python":
            compile(block.text, block.place, "exec")
        case "sh":
            subprocess.run(["bash", "-n", "-c", block.text], check=True)


def _administer(script: str) -> None:
    """Execute each statement by itself, as `psql` does, under other names, and drop what it created."""
    name = f"docs_{secrets.token_hex(6)}"
    statements = [re.sub(r"\bhorae\b", name, statement) for statement in script.split(";") if statement.strip()]
    try:
        asyncio.run(_execute_all(statements))
    finally:
        asyncio.run(_execute_all([f"DROP DATABASE IF EXISTS {name}", f"DROP ROLE IF EXISTS {name}"]))


async def _execute_all(statements: Sequence[str]) -> None:
    connection = await asyncpg.connect(postgres_url())
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _end_session(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(WITHIN)
    assert process.stdout is not None
    process.stdout.close()
