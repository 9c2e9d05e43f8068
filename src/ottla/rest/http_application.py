"""From an HTTP request to an operation of the table of routes, and back."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ottla.clients.errors import ClientClosedError
from ottla.registry.http_messages import AnyResponse, HttpRequest, HttpResponse, StreamedResponse
from ottla.registry.route_tree import RouteTree
from ottla.rest.call import AllowEverything, Answer, Authorizer, Call, Route, Services
from ottla.rest.openapi import openapi_document
from ottla.rest.rest_errors import RestError, from_client, short
from ottla.rest.routes import ROUTES
from ottla.rest.topic_records import ARROW_TYPE, without_arrow
from ottla.schemas.json_schema.json_text import (
    TooDeepError,
    TooManyItemsError,
    check_depth,
    check_items,
)

BODY_BYTES_MAX: Final = 10 << 20
"""The body of one request; of a stream of records, one chunk."""
HANDLED_BYTES_MAX: Final = 64 << 20
"""Bodies of all requests that are being handled; beyond it there is 429."""
BODY_ITEMS_MAX: Final = 250_000
"""Objects, arrays and values in one body. Each becomes a Python object, and the broker's event loop
waits while they are made: 50 ms for this many."""
_WILDCARDS: Final = frozenset({"*/*", "application/*"})
_encode = msgspec.json.Encoder().encode


class _Error(msgspec.Struct):
    error_code: int
    message: str


_TREE: Final = RouteTree(ROUTES, RestError)
_DECODERS: Final[Mapping[type, msgspec.json.Decoder[Any]]] = {
    route.body: msgspec.json.Decoder(route.body) for route in ROUTES if route.body is not None
}


def streams_body(request: HttpRequest) -> bool:
    """Whether the body of a request is given to its operation as it arrives."""
    if request.method != "POST" or not request.target.partition("?")[0].endswith("/records"):
        return False
    try:
        route, _ = _TREE.find(request.method, _TREE.segments(request.target.partition("?")[0]))
    except RestError:
        return False
    return route.streams_body


class RestApplication:
    """The handler of an HttpServer."""

    def __init__(self, services: Services, authorizer: Authorizer | None = None) -> None:
        self._services = services
        self._authorizer = authorizer or AllowEverything()
        self._handled_bytes = 0

    def handle(self, request: HttpRequest) -> AnyResponse | Awaitable[AnyResponse]:
        """Answer a request."""
        try:
            path, _, query = request.target.partition("?")
            if path == "/openapi.json" and request.method in {"GET", "HEAD"}:
                return HttpResponse(200, openapi_document(), "application/json")
            route, variables = _TREE.find(request.method, _TREE.segments(path))
            call = self._call(request, route, variables, query)
        except RestError as refused:
            return refusal_response(refused)
        return self._run(route, call)

    def _call(
        self, request: HttpRequest, route: Route, variables: Mapping[str, str], query: str
    ) -> Call:
        answer_type = _negotiated(request.headers.get("accept"), route.answer_types)
        if answer_type == ARROW_TYPE and (refused := without_arrow()) is not None:
            raise refused
        body_type = _body_type(route, request)
        if self._handled_bytes + len(request.body) > HANDLED_BYTES_MAX:
            raise RestError(429, "The proxy handles too many large requests: repeat it later.")
        return Call(
            self._services,
            request,
            variables,
            _TREE.query(query),
            answer_type,
            body_type,
            _body(route, request),
            self._authorizer,
        )

    async def _run(self, route: Route, call: Call) -> AnyResponse:
        size = len(call.request.body)
        self._handled_bytes += size
        try:
            call.authorize(route.operation, route.kind, call.path.get(route.resource))
            return _response(await route.run(call), call.content_type)
        except ClientClosedError:
            return refusal_response(RestError(503, "The proxy is shutting down."))
        except Exception as error:
            refused = from_client(error)
            if refused is None:
                raise
            return refusal_response(refused, call.content_type)
        finally:
            self._handled_bytes -= size


def _body_type(route: Route, request: HttpRequest) -> str:
    content_type = request.headers.get("content-type", "")
    bare_type = content_type.partition(";")[0].strip().lower()
    has_body = route.body is not None or route.streams_body
    if has_body and bare_type not in route.body_types:
        is_needed = bool(bare_type) or "application/json" not in route.body_types
        if is_needed:
            known = ", ".join(route.body_types)
            raise RestError(415, f"HTTP 415 Unsupported Media Type: known are {known}")
    return bare_type


def _body(route: Route, request: HttpRequest) -> Any:
    if route.body is None or (route.is_body_optional and not request.body.strip()):
        return None
    try:
        text = request.body.decode()
        check_items(text, BODY_ITEMS_MAX)
        check_depth(text)
        return _DECODERS[route.body].decode(request.body)
    except TooManyItemsError as large:
        raise RestError(413, f"The body has {large}") from None
    except msgspec.ValidationError as invalid:
        raise RestError(422, f"The body is not valid: {short(invalid)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, TooDeepError, RecursionError) as invalid:
        raise RestError(400, f"The body is not JSON: {short(invalid)}") from None


def _negotiated(accept: str | None, known: Sequence[str]) -> str:
    """Return the content type of the answer; RestError 406 if the client takes none of them."""
    if accept is None or not accept.strip():
        return known[0]
    best, best_weight = None, 0.0
    for item in accept.split(","):
        name, *parameters = [part.strip().lower() for part in item.split(";")]
        answer_type = known[0] if name in _WILDCARDS else name
        weight = _weight(parameters)
        if answer_type in known and weight > best_weight:
            best, best_weight = answer_type, weight
    if best is None:
        raise RestError(406, f"HTTP 406 Not Acceptable: known are {', '.join(known)}")
    return best


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _response(answer: Any, content_type: str) -> AnyResponse:
    if isinstance(answer, StreamedResponse):
        return answer
    if answer is None:
        return HttpResponse(204)
    if not isinstance(answer, Answer):
        answer = Answer(answer)
    return HttpResponse(answer.status, _encode(answer.content), answer.content_type or content_type)


def refusal_response(refused: RestError, content_type: str = "application/json") -> HttpResponse:
    """Return the response for a refusal; its type is always JSON."""
    if not content_type.endswith("json") or content_type == "application/x-ndjson":
        content_type = "application/json"
    body = _encode(_Error(refused.code, refused.message))
    return HttpResponse(refused.status, body, content_type)
