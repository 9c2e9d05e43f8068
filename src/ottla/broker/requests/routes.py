"""A row of the table of APIs, which ApiVersions reports and dispatch follows.

The rows are in `startup/route_table.py`, and `assembly.py` puts them together.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.broker.requests.request_context import RequestContext
from ottla.wire.messages.api_versions import ApiVersion

Handle = Callable[[RequestContext, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """The supported versions of an API, and its handler."""

    versions: range
    handle: Handle
    is_offered: Callable[[], bool] = lambda: True
    """Whether ApiVersions lists it; requests are handled in any case."""
    is_for_controller: bool = False
    """Whether only the controller can handle it: other brokers forward it."""


Routes = Mapping[int, Route]


def offered_versions(routes: Routes) -> list[ApiVersion]:
    """Return the rows of ApiVersions, in the order of the keys."""
    return [
        ApiVersion(
            api_key=key,
            min_version=route.versions[0],
            max_version=route.versions[-1],
        )
        for key, route in sorted(routes.items())
        if route.is_offered()
    ]
