"""A row of the table of APIs, which ApiVersions reports and dispatch follows.

The rows are in `startup/route_table.py`, and `assembly.py` puts them together.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.broker.requests.request_context import RequestContext

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
