"""Finds the operation of an HTTP request in a table of routes; the REST proxy uses it, too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import parse_qs, unquote

QUERY_FIELDS_MAX: Final = 100


class _Route(Protocol):
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=_Route)


@dataclass(slots=True)
class _Node(Generic[R]):
    """The operations of a path, and the paths below it."""

    routes: dict[str, R] = field(default_factory=dict)
    literals: dict[str, "_Node[R]"] = field(default_factory=dict)
    variable: "tuple[str, _Node[R]] | None" = None

    def grown(self, segment: str) -> "_Node[R]":
        """Return the node below, and create it if it does not exist."""
        if segment.startswith("{"):
            self.variable = self.variable or (segment[1:-1], _Node())
            return self.variable[1]
        return self.literals.setdefault(segment, _Node()) if segment else self

    def below(self, segment: str, variables: dict[str, str]) -> "_Node[R] | None":
        """Return the node of a segment, and note the value of its variable."""
        literal = self.literals.get(segment)
        if literal is not None or self.variable is None or not segment:
            return literal
        name, node = self.variable
        variables[name] = segment
        return node


class RouteTree(Generic[R]):
    """The routes by the segments of their paths. `refuse` makes the error of a status."""

    def __init__(self, routes: Sequence[R], refuse: Callable[[int, str], Exception]) -> None:
        self._refuse = refuse
        self._root: _Node[R] = _Node()
        for route in routes:
            node = self._root
            for segment in route.path.split("/")[1:]:
                node = node.grown(segment)
            node.routes[route.method] = route

    def segments(self, path: str) -> list[str]:
        """Return the decoded segments of a path, without slashes at its end."""
        if not path.startswith("/"):
            raise self._refuse(404, "HTTP 404 Not Found")
        segments = [self._decoded(segment) for segment in path.split("/")[1:]]
        while segments and not segments[-1]:
            segments.pop()
        return segments

    def find(self, method: str, segments: Sequence[str]) -> tuple[R, dict[str, str]]:
        """Return the route and the variables of its path; status 404 or 405 if there is none."""
        variables: dict[str, str] = {}
        node: _Node[R] | None = self._root
        for segment in segments:
            if node is not None:
                node = node.below(segment, variables)
        if node is None or not node.routes:
            raise self._refuse(404, "HTTP 404 Not Found")
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            raise self._refuse(405, "HTTP 405 Method Not Allowed")
        return route, variables

    def query(self, query: str) -> Mapping[str, Sequence[str]]:
        """Return the values of each field of a query; status 400 if it cannot be read."""
        if not query:
            return {}
        try:
            return parse_qs(
                query, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
            )
        except ValueError:  # UnicodeDecodeError is one
            raise self._refuse(400, "The query is not valid.") from None

    def _decoded(self, segment: str) -> str:
        if "%" not in segment:
            return segment
        try:
            return unquote(segment, errors="strict")
        except UnicodeDecodeError:
            raise self._refuse(400, "The path is not UTF-8.") from None
