"""`horae db`: bring the store's schema up to date, and see where it stands."""

import asyncio
from typing import Annotated

from cyclopts import App, Parameter

from horae.cli.output import Output, print_fields, print_json

app = App(name="db", help="Prepare the store and see where it stands.")

StoreUrl = Annotated[str | None, Parameter(help="The store's address (HORAE_STORE).")]


@app.command(sort_key=0)
def migrate(*, store: StoreUrl = None) -> None:
    """Bring the schema up to date; several may do so at once, and there is no harm in doing it again."""
    from horae.adapters import make_store  # late: it imports the adapters
    from horae.config import load_settings, without_password

    url = load_settings({"store": store}).store
    applied = asyncio.run(make_store(url).migrate())
    steps = "nothing to do" if not applied else f"applied {', '.join(map(str, applied))}"
    print_fields({"store": without_password(url), "schema": steps})


@app.command(sort_key=1)
def status(*, store: StoreUrl = None, output: Output = "table") -> int:
    """Show the version of the schema; the exit code is 1 when it is not the one that this Horae needs."""
    from horae.adapters import make_store
    from horae.config import load_settings, without_password

    url = load_settings({"store": store}).store
    version, expected = asyncio.run(make_store(url).status())
    if output == "json":
        print_json({"store": without_password(url), "version": version, "expected": expected})
    else:
        print_fields({"store": without_password(url), "schema": _verdict(version, expected)})
    return 0 if version == expected else 1


def _verdict(version: int, expected: int) -> str:
    if version == expected:
        return f"version {version}, up to date"
    if version < expected:
        return f"version {version}, but this Horae needs {expected}: run `horae db migrate`"
    return f"version {version}, newer than this Horae knows ({expected}): upgrade Horae"
