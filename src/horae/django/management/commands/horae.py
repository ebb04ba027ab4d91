"""`manage.py horae worker|serve|migrate`: runs a node with the tasks of the project, and prepares the store."""

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from horae.adapters import make_store
from horae.config import ROLES, load_settings, parse_names, without_password
from horae.core.errors import HoraeError
from horae.django import app
from horae.runtime.applications import with_store_of
from horae.runtime.launch import run_node
from horae.runtime.plan import NodePlan, checked_roles

CONCURRENCY = 20  # each task may hold a database connection, and PostgreSQL has 100 by default


class Command(BaseCommand):
    """The command `horae`."""

    help = "Runs the tasks of this project (worker), a whole node with the REST API (serve), or prepares the store."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the three commands and their options."""
        commands = parser.add_subparsers(dest="command", required=True)
        worker = commands.add_parser("worker", help="start a node that plans and runs tasks")
        serve = commands.add_parser("serve", help="start a node with the REST API")
        serve.add_argument("--host", help="the address to listen on (HORAE_HOST, 127.0.0.1)")
        serve.add_argument("--port", type=int, help="the port to listen on (HORAE_PORT, 8765)")
        for command, roles in ((worker, "planner,worker"), (serve, ",".join(ROLES))):
            command.add_argument("--roles", default=roles, help=f"what this node does, as a,b (default {roles})")
            command.add_argument("--queues", default="", help="run only what is in these queues, as a,b (default all)")
            command.add_argument("--concurrency", type=int, default=CONCURRENCY, help="how many runs at a time")
            command.add_argument("--processes", type=int, default=1, help="how many processes share the work")
        commands.add_parser("migrate", help="create or update the tables of Horae")

    def handle(self, *args: Any, command: str, **options: Any) -> None:
        """Run one of the commands."""
        try:
            if command == "migrate":
                self._migrate()
            else:
                _run(options)
        except HoraeError as exc:
            raise CommandError(str(exc)) from exc

    def _migrate(self) -> None:
        address = with_store_of([app], load_settings()).store
        applied = asyncio.run(make_store(address).migrate())
        steps = f"applied {', '.join(map(str, applied))}" if applied else "nothing to do"
        self.stdout.write(f"{without_password(address)}: {steps}")


def _run(options: dict[str, Any]) -> None:
    plan = NodePlan(
        roles=checked_roles(parse_names(options["roles"]), option="--roles"),
        apps=("horae.django.node:app",),
        queues=parse_names(options["queues"]),
        concurrency=options["concurrency"],
    )
    settings = load_settings({"host": options.get("host"), "port": options.get("port")})
    connections.close_all()  # the system checks may have opened some
    code = run_node(settings, plan, processes=options["processes"])
    if code:
        raise SystemExit(code)
