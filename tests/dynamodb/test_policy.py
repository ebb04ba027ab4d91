"""The policies for IAM in the documentation: exactly the actions that the code calls."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session

import horae.stores.dynamodb

PAGE = Path(__file__).parents[2] / "docs/operations/dynamodb.md"
ROOM = Path(horae.stores.dynamodb.__file__).parent
OF_STATEMENTS = {
    "INSERT": "PartiQLInsert",
    "UPDATE": "PartiQLUpdate",
    "DELETE": "PartiQLDelete",
    "SELECT": "PartiQLSelect",
}
OF_TRANSACTIONS = ("ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem")  # what one consists of


def actions_of(sid: str) -> set[str]:
    """The actions of a policy of the page."""
    policies: list[Any] = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.S)]
    [statement] = [each for policy in policies for each in policy["Statement"] if each["Sid"] == sid]
    return {action.removeprefix("dynamodb:") for action in statement["Action"]}


def texts(path: Path) -> Iterator[str]:
    """The texts that a module consists of, without its docstrings."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def called_by(paths: Iterator[Path]) -> set[str]:
    """The permissions for what modules call: every text that is the name of an action, or begins a statement."""
    known = set(botocore.session.get_session().get_service_model("dynamodb").operation_names)
    called: set[str] = set()
    for path in paths:
        for text in texts(path):
            if text in known:
                called.add(text)
            if (verb := text.partition(" ")[0]) in OF_STATEMENTS:
                called.add(OF_STATEMENTS[verb])
    if "TransactWriteItems" in called:
        called |= set(OF_TRANSACTIONS)
    return called - {"TransactWriteItems", "BatchExecuteStatement"}  # permitted by what they consist of


def of_migration(path: Path) -> bool:
    return path.parent.name == "tables"


def test_the_policy_of_a_node_names_exactly_the_actions_that_the_code_calls() -> None:
    modules = (path for path in ROOM.rglob("*.py") if not of_migration(path))
    assert called_by(modules) == actions_of("Node")


def test_the_policy_for_migrations_names_what_they_call_beyond_that() -> None:
    modules = (path for path in ROOM.rglob("*.py") if of_migration(path))
    assert called_by(modules) - actions_of("Node") == actions_of("Migrate")
