"""`horae dev`, `serve` and `worker`: start a node and run until a signal stops it."""

import signal
from collections.abc import Mapping, Sequence
from typing import Annotated

from cyclopts import Parameter

from horae.cli.arguments import Flag, Positive, Several, StoreUrl
from horae.config import ROLES, load_settings, parse_names

DEV_DRAIN_SECONDS = 2  # a person who presses Ctrl-C does not want to wait

Apps = Annotated[list[str] | None, Several, Parameter(name="--app", help="Your tasks, as MODULE:APP; may be repeated.")]
Port = Annotated[int | None, Parameter(help="The port to listen on (HORAE_PORT, 8765).")]
Queues = Annotated[str | None, Parameter(help="Run only what is in these queues, as a,b (default all).")]
Concurrency = Annotated[int | None, Positive, Parameter(help="How many runs at a time.")]


def dev(
    *,
    apps: Apps = None,
    port: Port = None,
    store: StoreUrl = None,
    no_demo: Annotated[bool, Flag, Parameter(help="Create no demo jobs.")] = False,
) -> int:
    """Start all roles in one process on this machine only: SQLite in .horae/, no auth, `shell.run` allowed."""
    flags = {
        "host": "127.0.0.1",
        "port": port,
        "store": store,
        "auth": "off",
        "allow_shell": True,
        "drain_seconds": DEV_DRAIN_SECONDS,
    }
    return _run(flags, roles=ROLES, apps=apps, dev=True, demo=not no_demo)


def serve(
    *,
    roles: Annotated[str, Parameter(help="What this node does, as a,b.")] = ",".join(ROLES),
    apps: Apps = None,
    host: Annotated[str | None, Parameter(help="The address to listen on (HORAE_HOST, 127.0.0.1).")] = None,
    port: Port = None,
    store: StoreUrl = None,
    queues: Queues = None,
    concurrency: Concurrency = None,
    processes: Annotated[int, Positive, Parameter(help="How many processes share the port and the work.")] = 1,
) -> int:
    """Start a node for production; any number of them share one store."""
    flags = {"host": host, "port": port, "store": store}
    return _run(flags, roles=parse_names(roles), apps=apps, queues=queues, concurrency=concurrency, processes=processes)


def worker(
    *,
    apps: Annotated[list[str], Several, Parameter(name="--app", help="Your tasks, as MODULE:APP; may be repeated.")],
    store: StoreUrl = None,
    queues: Queues = None,
    concurrency: Concurrency = None,
) -> int:
    """Start a node that only runs tasks; the same as `serve --roles worker`."""
    return _run({"store": store}, roles=("worker",), apps=apps, queues=queues, concurrency=concurrency)


def _run(
    flags: Mapping[str, object],
    *,
    roles: Sequence[str],
    apps: Sequence[str] | None,
    queues: str | None = None,
    concurrency: int | None = None,
    processes: int = 1,
    dev: bool = False,
    demo: bool = False,
) -> int:
    from horae.cli.banner import Banner
    from horae.log_setup import shows_banner

    # Python can lose a Ctrl-C that arrives during an import. Until the node handles it, it ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from horae.runtime.launch import run_node  # late: it imports everything
    from horae.runtime.plan import DEFAULT_CONCURRENCY, NodePlan, checked_roles

    plan = NodePlan(
        roles=checked_roles(roles, option="--roles"),
        apps=tuple(apps or ()),
        queues=parse_names(queues or ""),
        concurrency=concurrency or DEFAULT_CONCURRENCY,
        demo=demo,
        local=dev,
    )
    settings = load_settings(flags)
    announcer = Banner() if dev and shows_banner(settings.log) else None
    return run_node(settings, plan, processes=processes, announcer=announcer)
