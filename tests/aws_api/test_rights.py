"""The policies in the documentation allow what the code asks for, and nothing else."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks_of

ASKS = {"call", "ask", "send_batches", "_for_each_line"}  # functions that name an action of a service
ACTION = re.compile(r"[A-Z][A-Za-z]+")
BATCHES = {  # what Amazon allows together with the action for one
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}


def _asked(folder: Path) -> Iterator[str]:
    """The actions that code below a folder names."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in ASKS:
                texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
                yield from (text for text in texts if isinstance(text, str) and ACTION.fullmatch(text))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _policies(page: Path) -> Iterator[dict[str, Any]]:
    for block in blocks_of(page):
        if block.language == "json" and '"Statement"' in block.text:
            yield json.loads(block.text)


def _allowed(page: Path, service: str) -> set[str]:
    actions = {action for policy in _policies(page) for each in policy["Statement"] for action in each["Action"]}
    return {action.removeprefix(f"{service}:") for action in actions if action.startswith(f"{service}:")}


def test_the_policy_of_sqs_allows_what_the_queue_asks_for_and_nothing_else() -> None:
    asked = {BATCHES.get(action, action) for action in _asked(ROOT / "src" / "horae" / "queues" / "sqs")}
    assert {"CreateQueue", "SendMessage", "ReceiveMessage", "DeleteMessage"} <= asked
    assert _allowed(ROOT / "docs" / "operations" / "sqs.md", "sqs") == asked


@pytest.mark.parametrize("page", ["sqs.md"])
def test_a_policy_names_its_resources(page: str) -> None:
    for policy in _policies(ROOT / "docs" / "operations" / page):
        for statement in policy["Statement"]:
            assert statement["Effect"] == "Allow"
            if statement["Resource"] == "*":
                assert all(":List" in action for action in statement["Action"]), "only lists know no resources"
