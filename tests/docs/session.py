"""A Python session that runs the snippets of a page one after another, in one module and one event loop.

A program that `stage.py` starts: it reads one JSON document per line, and answers each with one.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any


def main() -> None:
    sys.path.insert(0, ".")
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(_run(request["code"], request["place"], vars(module), runner.run)), flush=True)


def _run(code: str, place: str, names: dict[str, Any], run: Callable[[Any], Any]) -> dict[str, object]:
    printed = io.StringIO()
    failed = False
    with contextlib.redirect_stdout(printed):
        try:
            compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            answer = eval(compiled, names)
            if inspect.iscoroutine(answer):
                run(answer)
        except Exception:  # noqa: BLE001 - reported in the answer
            traceback.print_exc(file=printed)
            failed = True
    return {"failed": failed, "printed": printed.getvalue()}


if __name__ == "__main__":
    main()
