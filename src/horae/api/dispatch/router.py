"""Finds the route of a path by one look at all of them, instead of asking one after another."""

import re
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.routing import Router
from starlette.types import Scope

from horae.api.dispatch.context import Resource

_NAMED = re.compile(r"\(\?P<\w+>")


class Routes(Router):
    """Routes, of which the first that fits the path is the one."""

    def __init__(self, routes: Sequence[Resource]) -> None:
        super().__init__(routes, redirect_slashes=False)  # a wrong path is told, not guessed at
        self._ordered = tuple(routes)
        self._any = re.compile("|".join(f"({_NAMED.sub('(?:', route.path_regex.pattern)})" for route in routes))

    def find(self, scope: Scope) -> Resource:
        """The route of a request, which is told its parameters; raises HTTPException when there is none."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        found = self._any.match(path)
        if found is None:
            raise HTTPException(404)
        assert found.lastindex is not None
        route = self._ordered[found.lastindex - 1]
        match = route.path_regex.match(path)
        assert match is not None
        scope["path_params"] = {**scope.get("path_params", {}), **match.groupdict()}
        return route
