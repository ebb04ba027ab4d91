"""Writes the generated parts of the reference from the code: `python docs/make_reference.py`.

A page marks them with `<!-- generated: NAME -->` and `<!-- end -->`; everything else in it is written by hand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from cyclopts import App

from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.api.openapi.document import PROBLEMS, TAGS, document
from horae.cli.app import build
from horae.size.dynamodb import dynamodb_quotes, idle_line
from horae.size.estimate import Quote
from horae.size.load import load_of
from horae.size.postgres import postgres_quote
from horae.size.prices import Prices

DOCS = Path(__file__).parent
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
COMMON = {"400", "401", "403", "408", "413", "414", "422", "429", "431", "503"}  # listed once, above the tables

Schema = Mapping[str, Any]


def main() -> None:
    for page in pages():
        page.write_text(filled(page.read_text("utf-8")), "utf-8")


def pages() -> list[Path]:
    """Return the pages that have generated parts."""
    return [page for page in sorted(DOCS.rglob("*.md")) if PART.search(page.read_text("utf-8"))]


def filled(text: str) -> str:
    """Return a page with its generated parts written from the present code."""
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", text)


# --- REST -------------------------------------------------------------------------------------------------------------


def openapi() -> Schema:
    return document(create_app(cast(Services, None)).routes)


def operations() -> str:
    """Return a table of operations for each tag, in the order of the OpenAPI document."""
    found: dict[str, list[list[str]]] = {tag: [] for tag in TAGS}
    for path, methods in openapi()["paths"].items():
        for method, operation in methods.items():
            found[operation["tags"][0]].append(_operation_row(method, path, operation))
    return "\n\n".join(
        f"**{tag.capitalize()}.** {TAGS[tag]}\n\n{_table(('call', 'does', 'takes', 'scope', 'answers'), rows)}"
        for tag, rows in found.items()
        if rows
    )


def _operation_row(method: str, path: str, operation: Schema) -> list[str]:
    taken = [param["name"] for param in operation["parameters"] if param["in"] != "path"]
    scopes = [scope for needed in operation["security"] for scope in needed["bearer"]]
    answers = [status for status in operation["responses"] if status not in COMMON]
    return [
        f"`{method.upper()} {path}`",
        operation["summary"],
        ", ".join(f"`{name}`" for name in taken),
        ", ".join(f"`{scope}`" for scope in scopes) or "open",
        ", ".join(answers),
    ]


def job_fields() -> str:
    """Return the fields of a new job, with their defaults and limits."""
    schema = openapi()["components"]["schemas"]["JobRequest"]
    rows = [
        [f"`{name}`", _default(name, field, schema["required"]), _limits(field), field.get("description", "")]
        for name, field in schema["properties"].items()
    ]
    return _table(("field", "default", "is", ""), rows)


def _default(name: str, field: Schema, required: Iterable[str]) -> str:
    if name in required:
        return "required"
    value = field.get("default")
    return "none" if value is None else f"`{_compact(value)}`"


def _compact(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{name}": {_compact(item)}' for name, item in value.items()) + "}"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _limits(field: Schema) -> str:
    """Return the type of a field in words."""
    if "anyOf" in field:
        return " or ".join(words for each in field["anyOf"] if (words := _limits(each)))
    if "$ref" in field:
        return _referred(field["$ref"].rpartition("/")[2])
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    match field.get("type"):
        case "integer" | "number" as kind:
            low, high = field.get("minimum", field.get("exclusiveMinimum", 0)), field.get("maximum")
            return f"{'an integer' if kind == 'integer' else 'a number'}, {_compact(low)} to {_compact(high)}"
        case "string":
            return f"text of up to {field['maxLength']} characters" if "maxLength" in field else "text"
        case "boolean":
            return "`true` or `false`"
        case "object":
            most = field.get("maxProperties")
            return "an object" if most is None else f"an object of up to {most} texts"
        case _:
            return ""


def _referred(name: str) -> str:
    schema = openapi()["components"]["schemas"][name]
    if "enum" in schema:
        return _limits(schema)
    return {"Schedule": "a [schedule](schedules.md)"}.get(name, "an object")


def refusals() -> str:
    """Return what each status of an error means."""
    return _table(("status", "means that"), [[str(status), meaning] for status, meaning in PROBLEMS.items()])


# --- the command line -------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command with its options."""
    return "\n\n".join(_command(words, app) for words, app in _leaves("horae", build()))


def _leaves(words: str, app: App) -> Iterator[tuple[str, App]]:
    inner = [name for name in app if not name.startswith("-")]
    if not inner:
        yield words, app
    for name in inner:
        yield from _leaves(f"{words} {name}", app[name])


def _command(words: str, app: App) -> str:
    collected = app.assemble_argument_collection(parse_docstring=False)
    arguments = [argument for argument in collected if argument.show and argument.name != "--output"]
    usage = [_usage(argument) for argument in arguments if not argument.name.startswith("-")]
    rows = [[_option(argument), _meaning(argument)] for argument in arguments]
    optional = " [OPTIONS]" if any(argument.name.startswith("-") for argument in arguments) else ""
    title = f"### {' '.join((words, *usage))}{optional}"
    return f"{title}\n\n{_sentences(app)}\n\n{_table(('', ''), rows)}" if rows else f"{title}\n\n{_sentences(app)}"


def _sentences(app: App) -> str:
    """Return the docstring of a command, which is longer than its line in the list of commands."""
    text = getattr(app.default_command, "__doc__", None) or app.help or ""
    return re.sub(r"\s+", " ", text).strip()


def _usage(argument: Any) -> str:
    name = argument.name.strip("-")
    return name if argument.required else f"[{name}]"


def _option(argument: Any) -> str:
    names = ", ".join(f"`{name}`" for name in argument.names)
    return f"{names} (required)" if argument.required and argument.name.startswith("-") else names


def _meaning(argument: Any) -> str:
    choices = [choice for hint in (argument.hint, *get_args(argument.hint)) for choice in _literals(hint)]
    parts = [argument.parameter.help or "", ", ".join(f"`{choice}`" for choice in choices)]
    default = argument.field_info.default
    if isinstance(default, str | int) and not isinstance(default, bool):
        parts.append(f"(default `{default}`)")
    return " ".join(filter(None, parts))


def _literals(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


# --- sizing -----------------------------------------------------------------------------------------------------------

RATES = (10, 1_000, 10_000, 100_000)  # jobs a second
KEPT_DAYS = 3.0  # what the page recommends for large loads, with an archive


def sizing() -> str:
    """Return what each rate needs and costs, on each store."""
    quotes = {rate: _quotes(rate) for rate in RATES}
    titles = ("", *(f"{rate:,} jobs/s" for rate in RATES))
    return "\n\n".join(
        f"**{quotes[RATES[0]][place].name}**\n\n{_table(titles, _size_rows([quotes[rate][place] for rate in RATES]))}"
        for place in range(3)
    )


def _quotes(rate: float) -> list[Quote]:
    load, prices = load_of(rate=rate, retention_days=KEPT_DAYS), Prices()
    postgres = postgres_quote(load, prices)
    on_demand, provisioned = dynamodb_quotes(load, prices)
    names = ("DynamoDB on demand, with SQS", "DynamoDB provisioned, with SQS", "PostgreSQL, with Redis from 1,000/s on")
    return [
        Quote(name=name, needs=quote.needs, lines=quote.lines)
        for name, quote in zip(names, (on_demand, provisioned, postgres), strict=True)
    ]


def _size_rows(quotes: list[Quote]) -> Iterator[list[str]]:
    """Return a row for each need and line that one of the quotes has, and the sum."""
    for what in dict.fromkeys(need.what for quote in quotes for need in quote.needs):
        amounts = [{need.what: need.amount for need in quote.needs}.get(what, "–") for quote in quotes]
        yield [what, *amounts]
    for item in dict.fromkeys(line.item for quote in quotes for line in quote.lines):
        dollars = [{line.item: f"${line.dollars:,.0f}" for line in quote.lines}.get(item, "–") for quote in quotes]
        yield [f"{item}, a month", *dollars]
    yield ["**together, a month**", *(f"**${quote.dollars:,.0f}**" for quote in quotes)]


def arithmetic() -> str:
    """Return the bill of 1,000 jobs a second on DynamoDB, line by line."""
    quote = _quotes(1_000)[0]
    rows = [[line.item, f"${line.dollars:,.2f}", line.arithmetic] for line in quote.lines]
    return _table(("line", "a month", "arithmetic"), rows)


def idle() -> str:
    """Return what three nodes cost that have nothing to do."""
    bill = idle_line(3, Prices())
    return f"Three nodes without work cost **${bill.dollars:.2f} a month** on DynamoDB: {bill.arithmetic}."


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _table(titles: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


PARTS: Mapping[str, Callable[[], str]] = {
    "operations": operations,
    "job_fields": job_fields,
    "refusals": refusals,
    "commands": commands,
    "sizing": sizing,
    "sizing_arithmetic": arithmetic,
    "sizing_idle": idle,
}


if __name__ == "__main__":
    main()
