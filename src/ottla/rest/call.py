"""A call of an operation, the services behind it, and the rows of the table of routes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.registry.http_messages import HttpRequest
from ottla.rest.rest_errors import RestError, unprocessable

if TYPE_CHECKING:
    from ottla.clients.admin.async_admin import AsyncAdmin
    from ottla.clients.cluster.cluster_client import ClusterView
    from ottla.environment.clock import Clock
    from ottla.rest.consumer_instances import ConsumerInstances
    from ottla.rest.embedded_formats import Formats
    from ottla.rest.producing import Producing
    from ottla.rest.reading import Readers

INTEGER_DIGITS_MAX: Final = 18
V2_JSON: Final = "application/vnd.kafka.v2+json"
V2_TYPES: Final = (V2_JSON, "application/vnd.kafka+json", "application/json")
JSON_TYPES: Final = ("application/json",)


class Operation(StrEnum):
    """The rights that operations need, in Kafka's words."""

    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"


class Authorizer(Protocol):
    """Decides whether a principal may do an operation on a resource."""

    def authorize(
        self, principal: str | None, operation: Operation, kind: str, name: str | None
    ) -> None:
        """RestError 40301 if it may not. The kind is cluster, topic or group."""
        ...


class AllowEverything:
    """The authorizer of a proxy without users."""

    def authorize(
        self, principal: str | None, operation: Operation, kind: str, name: str | None
    ) -> None:
        """Allow it."""


@dataclass(frozen=True, slots=True)
class Services:
    """The clients of the proxy; all belong to its event loop."""

    view: "ClusterView"
    admin: "AsyncAdmin"
    producing: "Producing"
    readers: "Readers"
    instances: "ConsumerInstances"
    formats: "Formats"
    clock: "Clock"
    broker_id: int
    creates_topics: bool
    """Whether the first record of an unknown topic creates it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response other than 200 with JSON."""

    content: Any
    status: int = 200
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an operation."""

    services: Services
    request: HttpRequest
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    content_type: str
    """Of the response, as negotiated."""
    body_type: str = ""
    body: Any = None
    authorizer: Authorizer = field(default_factory=AllowEverything)

    @property
    def topic(self) -> str:
        """The topic of the path."""
        return self.path["topic"]

    @property
    def base_url(self) -> str:
        """The URL of this proxy, as the client knows it."""
        return f"http://{self.request.headers.get('host', 'localhost')}"

    def authorize(self, operation: Operation, kind: str, name: str | None) -> None:
        """Check a right: the right of each route, and rights that depend on the body, pass here."""
        self.authorizer.authorize(None, operation, kind, name)

    def text(self, name: str) -> str:
        """Return a parameter; empty without one."""
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return self.text(name).lower() == "true"

    def integer(self, name: str, default: int | None = None, minimum: int = 0) -> int:
        """Return a parameter that is a number; RestError without it and without a default."""
        text = self.text(name)
        if not text:
            if default is None:
                raise unprocessable(f"The parameter {name} is missing.")
            return default
        return number_of(f"The parameter {name}", text, minimum)

    def path_number(self, name: str) -> int:
        """Return a number of the path; RestError 404 if it is not one."""
        text = self.path[name]
        if not (text.isascii() and text.isdigit() and len(text) <= INTEGER_DIGITS_MAX):
            raise RestError(404, f"HTTP 404 Not Found: {name} is not a number")
        return int(text)


def number_of(place: str, text: str, minimum: int = 0) -> int:
    """Return the number of a text; RestError 422 if it is none, or too small."""
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= INTEGER_DIGITS_MAX
    if not is_number or int(text) < minimum:
        raise unprocessable(f"{place} must be a number from {minimum}.")
    return int(text)


Run = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """An operation: a method and a path, and its right."""

    method: str
    path: str
    run: Run
    operation: Operation
    kind: str = "cluster"
    query: tuple[str, ...] = ()
    body: type | None = None
    """The type of the body; it may be missing if `is_body_optional`."""
    is_body_optional: bool = False
    answer_types: tuple[str, ...] = JSON_TYPES
    """Content types of the response; the first is preferred."""
    body_types: tuple[str, ...] = JSON_TYPES
    streams_body: bool = False

    @property
    def resource(self) -> str:
        """The name of the path's variable that names the resource."""
        return "group" if self.kind == "group" else "topic"
