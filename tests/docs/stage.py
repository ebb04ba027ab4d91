"""Where a page is played: a folder with a live Horae, a shell, a Python session and whatever the page starts itself."""

import asyncio
import configparser
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
from urllib.parse import urlsplit

import asyncpg
import httpx2
import pytest
import yaml

from horae.config import load_settings
from tests.docs.pages import Block
from tests.live import Live, free_port, live_horae
from tests.postgres_server import postgres_binaries, postgres_url

DEV_URL = "http://127.0.0.1:8765"
DATABASE = "://horae@db.example.com/horae"  # what the pages call the database of a company
WEB_PORT = "8000"  # what the pages call the port of a web application
EXPORTED = ".exported"  # what was exported in the terminal so far
READY = re.compile(r"event=ready\b|Application startup complete")
PYTEST_OPTIONS = "-p no:cacheprovider -p no:schemathesis"  # as in this repository, where the reader is
WITHIN = 60.0  # seconds for one block
REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+)")


class Stage:
    """Plays the blocks of one page, and remembers what the last one printed."""

    def __init__(self, live: Live, *, databases: ExitStack, processes: ExitStack) -> None:
        self.live = live
        self.printed = ""
        self._databases = databases
        self._processes = processes
        self._environment = live.environment | {"PYTEST_ADDOPTS": PYTEST_OPTIONS}
        self._environment.pop("COLUMNS", None)  # 80 in xdist's workers; a reader's pipe gets whole lines
        self._url = live.url
        self._web_port = str(free_port())
        (live.folder / EXPORTED).touch()

    def play(self, block: Block) -> None:
        """Do what a block says; fails when it is not true."""
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
                self._type(block)
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
                raise AssertionError(f"{block.place}: nobody knows what to do with {language} ({note})")

    # --- the ways to run something

    def _type(self, block: Block) -> None:
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
        """Each line is a command that stays; the first with an API is who is asked from now on."""
        for line in filter(str.strip, block.text.splitlines()):
            port = str(free_port())
            self._processes.enter_context(self._staying(line, block.place, port))
            if re.match(r"horae (serve|dev)", line) and "--roles worker" not in line:
                self._url = f"http://127.0.0.1:{port}"
                with (self.live.folder / EXPORTED).open("a") as exported:
                    exported.write(f"export HORAE_URL={self._url}\n")

    @contextmanager
    def _staying(self, command: str, place: str, port: str) -> Iterator[None]:
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
            while READY.search(told := log.read_text("utf-8", "replace")) is None:
                assert process.poll() is None, f"{place}: {command} ended by itself:\n{told}"
                assert time.monotonic() < deadline, f"{place}: {command} is not ready:\n{told}"
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
        """As a body; the id of the job or run that was last told of stands for {id}."""
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
            pytest.skip(f"{block.place} needs Node.js; everything above it holds")
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

    # --- names that stand for something else here

    def _localized(self, block: Block) -> str:
        text = block.text.replace(DEV_URL, self._url).replace(WEB_PORT, self._web_port)
        return text.replace(DATABASE, self._database.removeprefix("postgresql")) if DATABASE in text else text

    @cached_property
    def _database(self) -> str:
        """A database for this page, on the server of the tests, whose programs are on the path from now on."""
        name = f"docs_{secrets.token_hex(6)}"
        asyncio.run(_execute_all([f"CREATE DATABASE {name}"]))
        self._databases.callback(lambda: asyncio.run(_execute_all([f"DROP DATABASE {name} WITH (FORCE)"])))
        with (self.live.folder / EXPORTED).open("a") as exported:
            exported.write(f'export PATH="{postgres_binaries()}:$PATH"\n')
        return urlsplit(postgres_url())._replace(path=f"/{name}").geturl()


@contextmanager
def opened_stage(folder: Path) -> Iterator[Stage]:
    """A stage with `horae dev` on SQLite, as a reader has it."""
    with live_horae(folder, "dev") as live, ExitStack() as databases, ExitStack() as processes:
        yield Stage(live, databases=databases, processes=processes)


def compare(expected: str, printed: str) -> None:
    """Each expected line is printed, in this order; `…` stands for anything, and blanks do not count."""
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
        pattern = r"\s*" + r"\s*.*?\s*".join(parts) + r"\s*"
        assert any(re.fullmatch(pattern, candidate) for candidate in lines), f"no line {line!r} in order in:\n{printed}"


def compare_json(expected: Any, actual: Any, place: str) -> None:
    """What is shown of an answer is true; what is not shown may be there nevertheless."""
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
            raise AssertionError(f"{block.place}: nobody checks files like {path.name}")


def _check_unrun(block: Block) -> None:
    """What can be said of a block that nothing here can run."""
    match block.language:
        case "python":
            compile(block.text, block.place, "exec")
        case "ini":
            configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)
        case "sh":
            subprocess.run(["bash", "-n", "-c", block.text], check=True)


def _administer(script: str) -> None:
    """Each statement by itself, as `psql` does; the names are changed before, and what it made is taken away."""
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
