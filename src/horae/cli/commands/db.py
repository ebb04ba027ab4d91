"""`horae db`: migrate the store's schema, and show its version."""

import asyncio

from cyclopts import App

from horae.cli.arguments import StoreUrl
from horae.cli.output import Output, print_fields, print_note, print_result

app = App(name="db", help="Prepare the store, and show the version of its schema.")


@app.command(sort_key=0)
def migrate(*, store: StoreUrl = None) -> None:
    """Migrate the schema to this version of Horae, while nodes of the release before serve; safe to repeat."""
    from horae.adapters import make_store  # late: it imports the adapters
    from horae.config import load_settings, without_password

    url = load_settings({"store": store}).store
    applied = asyncio.run(make_store(url).migrate(print_note))
    steps = "nothing to do" if not applied else f"applied {', '.join(map(str, applied))}"
    print_fields({"store": without_password(url), "schema": steps})


@app.command(sort_key=1)
def status(*, store: StoreUrl = None, output: Output = "table") -> int:
    """Show the version of the schema; the exit code is 1 if this version of Horae cannot use it."""
    from horae.adapters import make_store
    from horae.config import load_settings, without_password

    url = load_settings({"store": store}).store
    status = asyncio.run(make_store(url).status())
    shown = without_password(url)
    document = {"store": shown, "version": status.version, "expected": status.expected, "oldest": status.oldest}
    print_result(document, {"store": shown, "schema": status.verdict}, output)
    return 0 if status.problem is None else 1
