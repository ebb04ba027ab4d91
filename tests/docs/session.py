"""A Python session of a reader: runs pieces of code one after another, in one module and one event loop.

Run as a program by `stage.py`: it reads a JSON document a line, and answers with one.
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
            print(json.dumps(_ran(request["code"], request["place"], vars(module), runner.run)), flush=True)


def _ran(code: str, place: str, names: dict[str, Any], run: Callable[[Any], Any]) -> dict[str, object]:
    printed = io.StringIO()
    failed = False
    with contextlib.redirect_stdout(printed):
        try:
            compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            answer = eval(compiled, names)
            if inspect.iscoroutine(answer):
                run(answer)
        except Exception:  # noqa: BLE001 - told to whoever reads the answer
            traceback.print_exc(file=printed)
            failed = True
    return {"failed": failed, "printed": printed.getvalue()}


if __name__ == "__main__":
    main()
