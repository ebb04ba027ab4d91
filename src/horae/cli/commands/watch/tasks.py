"""`horae tasks`: show the tasks that jobs can run, and their parameters."""

from typing import Any

from cyclopts import App

from horae.cli.client import CommandClient, Document
from horae.cli.output import Column, Output, print_page

app = App(name="tasks", help="Show the tasks that jobs can run, and their parameters.")

COLUMNS = (Column(title="TASK", least=16, cut="middle"), Column(title="PARAMETERS", least=20))


@app.default
@app.command
def ls(*, output: Output = "table") -> None:
    """List every task that a worker ever registered, with its parameters; those with a ? may be left out."""
    with CommandClient() as client:
        page = client.get("/v1/tasks")
    print_page(page, output, COLUMNS, _row, empty="no tasks; start a worker with `horae worker --app MODULE:APP`")


def _row(task: Document) -> list[Any]:
    schema = task["schema"]
    required = schema.get("required", ())
    return [
        task["name"],
        ", ".join(
            f"{name}{'' if name in required else '?'}: {_type(each)}"
            for name, each in schema.get("properties", {}).items()
        ),
    ]


def _type(schema: Document) -> str:
    """Return the type of a parameter in a word or two."""
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    return str(schema.get("type", "object" if "$ref" in schema else "any"))
