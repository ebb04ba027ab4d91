"""Tasks as users declare them."""

import asyncio
import dataclasses
import logging
import subprocess
import sys
import textwrap
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

import horae
from horae import Horae, Run, cron, every
from horae.core import errors as core_errors
from horae.core.errors import Fault, InvalidSchedule, Misconfigured
from horae.core.schedule.types import CronSchedule, Every
from horae.tasks.binding import InvalidParams
from horae.tasks.builtin import builtin_tasks
from horae.tasks.param_schema import schema_faults
from horae.tasks.registry import TaskExists, TaskKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class Colour(StrEnum):
    """A closed choice."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Address:
    """A shape."""

    street: str
    number: int = 1


class Unknown:
    """A type that no converter knows."""


@pytest.fixture
def app() -> Horae:
    return Horae()


async def test_calling_a_task_just_runs_it(app: Horae, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def add(left: int, right: int = 1) -> int:
        return left + right

    @app.task("build")
    def build(run: Run, day: str) -> str:
        run.log.info("building", day=day)
        run.progress(0.5)
        return f"{day} {run.attempt} {run.cancelled}"

    assert await add(2) == 3
    assert await add(left=2, right=2) == 4
    with caplog.at_level(logging.INFO):
        assert build(day="monday") == "monday 1 False"
    assert caplog.messages == ["building day=monday"]


def test_a_task_keeps_what_it_was_told(app: Horae) -> None:
    @app.task(max_retries=5, timeout=30)
    async def send() -> None: ...

    @app.task("crunch", timeout=timedelta(minutes=2))
    def crunch() -> None: ...

    assert (send.max_retries, send.timeout, send.kind) == (5, timedelta(seconds=30), TaskKind.ASYNC)
    assert (crunch.name, crunch.max_retries, crunch.timeout) == ("crunch", None, timedelta(minutes=2))
    assert crunch.kind is TaskKind.THREAD
    assert app.registry.get("crunch") is crunch


def test_a_name_is_the_functions_own_unless_given(app: Horae) -> None:
    @app.task
    def plain() -> None:
        """Do nothing."""

    assert plain.name == "tests.test_app.test_a_name_is_the_functions_own_unless_given.plain"
    assert plain.__doc__ == "Do nothing."


def test_store_and_owner_are_kept() -> None:
    app = Horae(store="postgresql://there/db", owner="billing")
    assert (app.store, app.owner) == ("postgresql://there/db", "billing")


def test_no_owner_is_called_what_stands_for_every_owner() -> None:
    with pytest.raises(Misconfigured, match="every owner"):
        Horae(owner="*")


def test_a_name_is_given_once(app: Horae) -> None:
    app.task("same")(lambda: None)
    with pytest.raises(TaskExists, match="'same'"):
        app.task("same")(lambda: None)
    app.task("demo.echo")(lambda: None)
    with pytest.raises(TaskExists, match=r"'demo\.echo'"):
        app.registry.with_tasks(builtin_tasks())


@pytest.mark.parametrize(
    ("declare", "reason"),
    [
        (lambda app: app.task("with space")(lambda: None), "not a valid task name"),
        (lambda app: app.task("x", timeout=0)(lambda: None), "timeout"),
        (lambda app: app.task("x", max_retries=-1)(lambda: None), "max_retries"),
        (lambda app: app.task("x", cpu=True)(lambda: None), "at the top level of a module"),
        (lambda app: app.task("x")(_positional), "positional-only"),
        (lambda app: app.task("x")(_generator), "is a generator"),
        (lambda app: app.task("x")(Address), "function"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(app: Horae, declare: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        declare(app)
    assert app.registry.names == []


def _positional(value: int, /) -> None: ...


def _generator() -> Any:
    yield 1


def test_the_schema_follows_from_the_annotations(app: Horae) -> None:
    def ship(  # type: ignore[no-untyped-def]
        run: Run,
        to: Address,
        colour: Colour = Colour.RED,
        count: Annotated[int, msgspec.Meta(ge=1, description="how many")] = 1,
        on: date | None = None,
        anything=None,
        odd: Unknown | None = None,
        *,
        tags: list[str],
    ) -> None:
        """Send a parcel."""

    assert app.task("ship")(ship).schema == {
        "type": "object",
        "description": "Send a parcel.",
        "properties": {
            "to": {"$ref": "#/$defs/Address"},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            "count": {"type": "integer", "minimum": 1, "description": "how many", "default": 1},
            "on": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "anything": {"default": None},
            "odd": {"default": None},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["to", "tags"],
        "additionalProperties": False,
        "$defs": {
            "Address": {
                "title": "Address",
                "description": "A shape.",
                "type": "object",
                "properties": {"street": {"type": "string"}, "number": {"type": "integer", "default": 1}},
                "required": ["street"],
            },
            "Colour": {"title": "Colour", "description": "A closed choice.", "enum": ["blue", "red"]},
        },
    }
    assert msgspec.json.decode(app.registry.schemas()["ship"])["required"] == ["to", "tags"]


def test_parameters_are_converted_to_their_types(app: Horae) -> None:
    @app.task("x")
    def x(
        to: Address, at: datetime, colour: Colour = Colour.RED, odd: Unknown | None = None, **more: object
    ) -> None: ...

    params = '{"to": {"street": "High"}, "at": "2026-01-01T00:00:00Z", "colour": "blue", "odd": [1], "extra": 2}'
    assert x.bind(params) == {
        "to": Address("High"),
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "colour": Colour.BLUE,
        "odd": [1],
        "extra": 2,
    }
    assert "additionalProperties" not in x.schema


def test_what_is_not_given_is_left_to_the_function(app: Horae) -> None:
    @app.task("x")
    def x(a: int = 1, b: str | None = "b") -> None: ...

    assert x.bind("{}") == {}
    assert x.bind('{"b": null}') == {"b": None}


def test_annotations_that_only_type_checkers_can_read_do_no_harm(app: Horae) -> None:
    def x(run: "Run", values: "Mapping[str, int]", number: "int") -> None: ...

    task = app.task("x")(x)
    assert list(task.injected) == ["run"]
    assert task.schema["properties"] == {"values": {}, "number": {"type": "integer"}}


def test_every_fault_of_parameters_is_found_with_its_pointer(app: Horae) -> None:
    @app.task("x")
    def x(to: Address, many: list[int], need: str) -> None: ...

    params = {"to": {"street": "High", "number": "one"}, "many": [1, "2"], "a/b": 1}
    faults = [
        Fault("/params/need", "is required"),
        Fault("/params/to/number", "must be a whole number, not text"),
        Fault("/params/many/1", "must be a whole number, not text"),
        Fault("/params/a~1b", "is not a known name; known are to, many, need"),
    ]
    assert app.registry.check("x", params) == faults
    assert app.registry.check("x", msgspec.json.encode(params).decode()) == faults
    assert app.registry.check("x", '{"to": {"street": "High"}, "many": [], "need": ""}') == []
    assert app.registry.check("unknown", {"any": 1}) == []
    with pytest.raises(InvalidParams, match="params/need: is required"):
        x.bind("{}")


@pytest.mark.parametrize("params", ["", "[]", "null", "{", '{"a": 1', "1e400", "[" * 100_000, '"\ud800"'])
def test_parameters_that_are_no_object_are_refused(app: Horae, params: str) -> None:
    @app.task("x")
    def x(a: int = 1) -> None: ...

    [fault] = x.check(params)
    assert fault.pointer == "/params"
    with pytest.raises(InvalidParams):
        x.bind(params)


def test_built_in_tasks_describe_themselves() -> None:
    registry = builtin_tasks()
    assert set(registry.names) == {"demo.echo", "demo.sleep", "demo.fail", "http.request", "shell.run"}
    for task in registry:
        assert task.schema["description"]
        properties = task.schema["properties"]
        assert isinstance(properties, dict)
        assert not {"run", "tools"} & set(properties)
    assert (
        registry.check("http.request", {"url": "https://example.com", "expect": [200, "4xx"], "body": {"a": 1}}) == []
    )
    assert [f.pointer for f in registry.check("http.request", {"url": 1, "expect": "9xx"})] == [
        "/params/url",
        "/params/expect",
    ]
    assert [f.pointer for f in registry.check("shell.run", {"command": "ls"})] == ["/params/command"]


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({}, None),
        ({"colour": "blue", "count": 3, "pair": [1, "a"], "on": None, "either": [1, 2]}, None),
        ({"to": {"street": 1}}, "/params/to/street"),
        ({"to": {"number": 1}}, "/params/to/street"),
        ({"to": []}, "/params/to"),
        ({"tags": [1]}, "/params/tags/0"),
        ({"count": 0}, "/params/count"),
        ({"count": True}, "/params/count"),
        ({"count": 1.5}, "/params/count"),
        ({"colour": "green"}, "/params/colour"),
        ({"pair": ["a", "b"]}, "/params/pair/0"),
        ({"pair": [1]}, "/params/pair"),
        ({"either": {}}, "/params/either"),
        ({"either": [1, "x"]}, "/params/either/1"),
        ({"scores": {"a": "b"}}, "/params/scores/a"),
        ({"on": "tomorrow"}, "/params/on"),
        ({"wrong": 1}, "/params/wrong"),
    ],
)
def test_check_and_binding_agree_on_what_fits(app: Horae, given: dict[str, object], pointer: str | None) -> None:
    @app.task("ship")
    def ship(
        to: Address,
        tags: list[str],
        colour: Colour = Colour.RED,
        count: Annotated[int, msgspec.Meta(ge=1)] = 1,
        pair: tuple[int, str] = (1, "a"),
        either: int | list[int] | None = None,
        scores: dict[str, float] | None = None,
        on: date | None = None,
    ) -> None: ...

    params = {"to": {"street": "High"}, "tags": ["a"], **given}
    assert [fault.pointer for fault in app.registry.check("ship", params)] == ([] if pointer is None else [pointer])
    if pointer is None:
        assert ship.bind(msgspec.json.encode(params).decode())
    else:
        with pytest.raises(InvalidParams):
            ship.bind(msgspec.json.encode(params).decode())


def test_a_schema_from_elsewhere_is_enough_to_check_by() -> None:
    schema = builtin_tasks().schemas()["shell.run"]
    assert schema_faults(schema, '{"command": ["ls"]}') == []
    assert schema_faults(schema, '{"command": []}') == [Fault("/params/command", "must not be empty")]
    endless = '{"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}}}'
    assert schema_faults(endless, '{"a": 1}') == []


def test_schedules_can_be_written_in_code() -> None:
    morning = cron("0 9 * * mon-fri", tz="Europe/Paris")
    assert isinstance(morning, CronSchedule)
    assert (morning.expression, morning.timezone) == ("0 9 * * mon-fri", "Europe/Paris")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for schedule in (every("5m"), every(minutes=5), every(timedelta(minutes=5))):
        assert schedule == Every(interval=timedelta(minutes=5), anchor=epoch)
    with pytest.raises(InvalidSchedule):
        cron("61 * * * *")
    with pytest.raises(TypeError):
        every()
    with pytest.raises(TypeError):
        every("5m", minutes=5)


def test_a_task_of_a_script_is_named_after_its_file(tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text(
        "from horae import Horae\napp = Horae()\n@app.task\ndef build() -> None: ...\nprint(build.name)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "report.build\n"


def test_wrong_arguments_of_a_task_are_type_errors(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        from horae import Horae, Run

        app = Horae()

        @app.task(max_retries=5)
        async def send(to: str, subject: str = "") -> str:
            return to

        @app.task("build")
        def build(run: Run, day: str) -> int:
            return 1

        @app.task
        def bare(run: Run, day: str) -> int:
            return 1

        async def good() -> str:
            number: int = build(day="monday") + bare("monday")
            return await send(to="a") + str(number)

        async def bad() -> None:
            await send(to=1)            # line 22
            await send()                # line 23
            build(day=3)                # line 24
            bare(run=None, day="x")     # line 25
            text: str = build("x")      # line 26
        """).lstrip()
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    root = Path(__file__).parents[1]  # where the types of the libraries are already in a cache
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert sorted(set(lines)) == [22, 23, 24, 25, 26], done.stdout + done.stderr


def test_an_interrupted_direct_call_is_the_callers(app: Horae) -> None:
    @app.task("x")
    async def x() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(x())


def test_every_error_is_importable_from_the_package() -> None:
    errors = {name: value for name, value in vars(core_errors).items() if _is_error(value)}
    assert errors
    for name, error in errors.items():
        assert getattr(horae, name) is error
        assert name in horae.__all__
    for name in ("Interrupted", "Refused", "TaskExists", "WouldBlock"):
        assert issubclass(getattr(horae, name), horae.HoraeError)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception) and value.__module__ == core_errors.__name__
