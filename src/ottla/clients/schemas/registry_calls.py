"""The operations of a schema registry as coroutines, with retries and caches.

Both clients run them: the synchronous client through a transport that never suspends.
"""

import json
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from ottla.clients.schemas.registry_http import (
    Request,
    Response,
    Transport,
    basic_authorization,
)
from ottla.clients.schemas.schema_json import schema_from_json, schema_to_json, without_none
from ottla.clients.schemas.schema_settings import RegistrySettings, Server
from ottla.environment.clock import Clock
from ottla.model.api_error import PicklableError
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import Schema

T = TypeVar("T")
CACHED_MAX: Final = 10_000
"""How many entries a cache has; the oldest entry goes first."""
UNKNOWN_MS: Final = 1_000
"""How long an unknown id is not asked for again."""
REFERENCE_DEPTH_MAX: Final = 10
REFERENCES_MAX: Final = 100
LIGHT_CHARACTERS_MAX: Final = 32 << 10
"""Of a schema; asyncio clients parse a longer one in another thread: it takes milliseconds."""
MESSAGE_CHARACTERS_MAX: Final = 500
"""How much of a response without an error code is quoted."""
LATEST: Final = "latest"
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class RegistryError(PicklableError):
    """The registry refused a request. `code` is Confluent's error code, such as 40401."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status}, code {code})")
        self.status = status
        self.code = code
        self.message = message


class RegistryUnreachableError(PicklableError, ConnectionError):
    """No server of the registry answered; a retry may help."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in the registry. A response may lack subject, version and GUID."""

    schema: Schema
    id: int
    guid: str | None = None
    subject: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The result of a compatibility check."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


@dataclass(slots=True)
class _Entry(Generic[T]):
    value: T | RegistryError
    until_ms: int | None


class _Cache(Generic[T]):
    """Values by key, asked for once: concurrent callers share one request.

    The lock covers both dicts; no request is sent while it is held.
    """

    def __init__(self, transport: Transport, clock: Clock, ttl_ms: int | None = None) -> None:
        self._transport = transport
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._lock = Lock()
        self._entries: dict[Any, _Entry[T]] = {}
        self._asked: dict[Any, Future[T]] = {}

    def find(self, key: Any) -> T | None:
        """Return a cached value; RegistryError if the key was unknown a moment ago."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until_ms is not None and self._clock.monotonic_ms() >= entry.until_ms:
            return None
        if isinstance(entry.value, RegistryError):
            raise entry.value
        return entry.value

    async def get(self, key: Any, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return a cached value, or ask; a failed request fails all callers that wait for it."""
        while True:
            if (found := self.find(key)) is not None:
                return found
            with self._lock:
                mine: Future[T] = Future()
                asked = self._asked.setdefault(key, mine)
            if asked is mine:
                return await self._ask(key, mine, ask)
            try:
                value: T = await self._transport.wait(asked)
            except _AbandonedError:
                continue  # that caller was cancelled: ask again
            return value

    async def _ask(
        self, key: Any, mine: "Future[T]", ask: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        try:
            value = await ask()
        except Exception as error:
            if isinstance(error, RegistryError) and error.status == _NOT_FOUND:
                self.put(key, error, UNKNOWN_MS)
            self._forget(key)
            mine.set_exception(error)
            raise
        except BaseException:  # a cancellation, or Ctrl-C: not the other callers' failure
            self._forget(key)
            mine.set_exception(_AbandonedError())
            raise
        self.put(key, value, self._ttl_ms)
        self._forget(key)
        mine.set_result(value)
        return value

    def _forget(self, key: Any) -> None:
        with self._lock:
            self._asked.pop(key, None)

    def put(self, key: Any, value: T | RegistryError, ttl_ms: int | None) -> None:
        """Cache a value, for ever without a TTL."""
        until_ms = None if ttl_ms is None else self._clock.monotonic_ms() + ttl_ms
        with self._lock:
            self._entries.pop(key, None)
            if len(self._entries) >= CACHED_MAX:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = _Entry(value, until_ms)

    def remove_if(self, matches: Callable[[Any], bool]) -> None:
        """Remove the entries with a matching key."""
        with self._lock:
            for key in [key for key in self._entries if matches(key)]:
                del self._entries[key]


class _AbandonedError(Exception):
    """The caller that asked was cancelled."""


class RegistryCalls:
    """One client's operations."""

    def __init__(self, settings: RegistrySettings, transport: Transport, clock: Clock) -> None:
        self.settings = settings
        self._transport = transport
        self._clock = clock
        self._preferred = 0
        """The server that answered last. A race between threads only costs an attempt."""
        self._by_id: _Cache[RegisteredSchema] = _Cache(transport, clock)
        self._by_guid: _Cache[RegisteredSchema] = _Cache(transport, clock)
        self._registered: _Cache[RegisteredSchema] = _Cache(transport, clock)
        self._versions: _Cache[RegisteredSchema] = _Cache(transport, clock)
        self._latest: _Cache[RegisteredSchema] = _Cache(transport, clock, settings.latest_ttl_ms)
        self._parsed: _Cache[ParsedSchema] = _Cache(transport, clock)

    def now_ms(self) -> int:
        """Return the time for caches."""
        return self._clock.monotonic_ms()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    # -- schemas ----------------------------------------------------------------------------------

    async def register(self, subject: str, schema: Schema, normalize: bool) -> RegisteredSchema:
        """Register, or return the id of an equal schema."""

        async def ask() -> RegisteredSchema:
            path = f"/subjects/{_quoted(subject)}/versions{_flags(normalize=normalize)}"
            answer = await self.ask("POST", path, schema_to_json(schema))
            self._latest.remove_if(lambda key: key[0] == subject)
            found = _registered(answer, schema)
            return RegisteredSchema(schema, found.id, found.guid, subject, found.version)

        return await self._registered.get((subject, _key(schema), normalize, True), ask)

    async def look_up(
        self, subject: str, schema: Schema, normalize: bool, deleted: bool
    ) -> RegisteredSchema:
        """Find the subject's version with an equal schema."""

        async def ask() -> RegisteredSchema:
            flags = _flags(normalize=normalize, deleted=deleted)
            path = f"/subjects/{_quoted(subject)}{flags}"
            return _registered(await self.ask("POST", path, schema_to_json(schema)), schema)

        return await self._registered.get((subject, _key(schema), normalize, deleted, "found"), ask)

    async def by_id(
        self, schema_id: int, subject: str | None, output_format: str | None
    ) -> RegisteredSchema:
        """Return a schema by its id."""

        async def ask() -> RegisteredSchema:
            query = _query(subject=subject, format=output_format)
            answer = await self.ask("GET", f"/schemas/ids/{schema_id}{query}")
            return _registered({"id": schema_id, **answer})

        return await self._by_id.get((schema_id, subject, output_format), ask)

    async def by_guid(self, guid: str, output_format: str | None) -> RegisteredSchema:
        """Return a schema by its GUID; its id is -1 if the response has none."""

        async def ask() -> RegisteredSchema:
            query = _query(format=output_format)
            answer = await self.ask("GET", f"/schemas/guids/{_quoted(guid)}{query}")
            return _registered({"id": -1, "guid": guid, **answer})

        return await self._by_guid.get((guid, output_format), ask)

    async def latest_version(self, subject: str, output_format: str | None) -> RegisteredSchema:
        """Return the latest version, perhaps from the cache."""
        return await self._latest.get(
            (subject, output_format), lambda: self._version(subject, LATEST, None, output_format)
        )

    async def latest_with_metadata(
        self, subject: str, properties: Mapping[str, str]
    ) -> RegisteredSchema:
        """Return the latest version with these properties, perhaps from the cache."""
        pairs = [
            pair for name, value in properties.items() for pair in (("key", name), ("value", value))
        ]

        async def ask() -> RegisteredSchema:
            path = f"/subjects/{_quoted(subject)}/metadata?{urlencode(pairs)}"
            return _registered(await self.ask("GET", path))

        return await self._latest.get((subject, tuple(pairs)), ask)

    async def version(
        self, subject: str, version: int, deleted: bool, output_format: str | None
    ) -> RegisteredSchema:
        """Return one version of a subject."""
        return await self._versions.get(
            (subject, version, deleted, output_format),
            lambda: self._version(subject, version, deleted, output_format),
        )

    async def _version(
        self, subject: str, version: int | str, deleted: bool | None, output_format: str | None
    ) -> RegisteredSchema:
        flags = _query(deleted="true" if deleted else None, format=output_format)
        answer = await self.ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}{flags}")
        return _registered(answer)

    async def parsed(self, schema: Schema) -> ParsedSchema:
        """Parse a schema; the registry has its references."""
        return await self._parsed_at(schema, 0, [0])

    async def _parsed_at(self, schema: Schema, depth: int, count: list[int]) -> ParsedSchema:
        if depth > REFERENCE_DEPTH_MAX:
            raise InvalidSchemaError(f"references are nested more than {REFERENCE_DEPTH_MAX} deep")

        async def parse() -> ParsedSchema:
            return await self._parse(schema, depth, count)

        return await self._parsed.get(_key(schema), parse)

    async def _parse(self, schema: Schema, depth: int, count: list[int]) -> ParsedSchema:
        references = {}
        for reference in schema.references:
            count[0] += 1
            if count[0] > REFERENCES_MAX:
                raise InvalidSchemaError(f"the schema has more than {REFERENCES_MAX} references")
            found = await self.version(reference.subject, reference.version, True, None)
            references[reference.name] = await self._parsed_at(found.schema, depth + 1, count)
        from ottla.schemas.parsing import parse_schema  # noqa: PLC0415 - needs the extra `schemas`

        if len(schema.text) <= LIGHT_CHARACTERS_MAX:
            return parse_schema(schema.type, schema.text, references)
        return await self._transport.compute(
            lambda: parse_schema(schema.type, schema.text, references)
        )

    # -- subjects and compatibility -------------------------------------------------------------

    async def check_compatibility(
        self, subject: str, schema: Schema, version: int | str | None, normalize: bool
    ) -> Compatibility:
        """Compare with one version, or with all that the subject's level names."""
        at = "" if version is None else f"/{version}"
        flags = _flags(normalize=normalize, verbose=True)
        path = f"/compatibility/subjects/{_quoted(subject)}/versions{at}{flags}"
        answer = await self.ask("POST", path, schema_to_json(schema), is_repeatable=True)
        return Compatibility(
            bool(answer.get("is_compatible")), tuple(map(str, answer.get("messages") or ()))
        )

    async def versions(self, subject: str, deleted: bool) -> list[int]:
        """Return the numbers of a subject's versions."""
        path = f"/subjects/{_quoted(subject)}/versions{_flags(deleted=deleted)}"
        return [int(version) for version in await self.ask("GET", path)]

    async def subjects(self, prefix: str | None, deleted: bool) -> list[str]:
        """Return the names of subjects."""
        flags = _query(subjectPrefix=prefix, deleted="true" if deleted else None)
        return [str(name) for name in await self.ask("GET", f"/subjects{flags}")]

    async def config(self, subject: str | None, default_to_global: bool) -> Any:
        """Return the config as JSON."""
        flags = _flags(defaultToGlobal=default_to_global and subject is not None)
        return await self.ask("GET", f"/config{_at(subject)}{flags}")

    async def set_config(self, subject: str | None, config: Mapping[str, Any]) -> Any:
        """Change the named members."""
        return await self.ask("PUT", f"/config{_at(subject)}", dict(config))

    async def delete_config(self, subject: str | None) -> Any:
        """Remove the config."""
        return await self.ask("DELETE", f"/config{_at(subject)}", is_repeatable=False)

    async def mode(self, subject: str | None, default_to_global: bool) -> str:
        """Return the mode."""
        flags = _flags(defaultToGlobal=default_to_global and subject is not None)
        return _mode(await self.ask("GET", f"/mode{_at(subject)}{flags}"))

    async def set_mode(self, subject: str | None, mode: str, force: bool) -> str:
        """Set the mode."""
        path = f"/mode{_at(subject)}{_flags(force=force)}"
        return _mode(await self.ask("PUT", path, {"mode": mode}))

    async def delete_mode(self, subject: str) -> str:
        """Remove the mode of a subject."""
        return _mode(await self.ask("DELETE", f"/mode{_at(subject)}", is_repeatable=False))

    async def delete_subject(self, subject: str, permanent: bool) -> list[int]:
        """Delete all versions."""
        path = f"/subjects/{_quoted(subject)}{_flags(permanent=permanent)}"
        answer = await self.ask("DELETE", path, is_repeatable=False)
        self._forget(subject)
        return [int(version) for version in answer]

    async def delete_version(self, subject: str, version: int | str, permanent: bool) -> int:
        """Delete one version."""
        flags = _flags(permanent=permanent)
        path = f"/subjects/{_quoted(subject)}/versions/{version}{flags}"
        answer = await self.ask("DELETE", path, is_repeatable=False)
        self._forget(subject)
        return int(answer)

    def _forget(self, subject: str) -> None:
        for cache in (self._registered, self._versions, self._latest):
            cache.remove_if(lambda key: key[0] == subject)

    # -- requests -------------------------------------------------------------------------------

    async def ask(
        self, method: str, path: str, body: object = None, *, is_repeatable: bool = True
    ) -> Any:
        """Send a request to the first server that answers, and return the parsed response.

        A request that is not repeatable is sent again only if the connection was refused.
        RegistryError for a refusal; RegistryUnreachableError if no server answered in time.
        """
        deadline_ms = self._clock.monotonic_ms() + self.settings.timeout_ms
        raw = None if body is None else json.dumps(body).encode()
        request = Request(method, path, raw)
        response, failure = None, ""
        for attempt in range(self.settings.retries + 1):
            if attempt:
                await self._transport.pause(self.settings.backoff_ms * 2 ** (attempt - 1) / 1000)
            response, failure = await self._round(request, deadline_ms, is_repeatable)
            if response is not None and not (is_repeatable and _is_transient(response)):
                break
            if self._clock.monotonic_ms() >= deadline_ms:
                break
        if response is not None:
            return parsed_body(response)
        raise self._unreachable(failure)

    async def _round(
        self, request: Request, deadline_ms: int, is_repeatable: bool
    ) -> tuple[Response | None, str]:
        """Try every server once; return the first good response, else the last response."""
        servers = self.settings.servers
        answered, failure = None, "no time was left"
        for step in range(len(servers)):
            number = (self._preferred + step) % len(servers)
            seconds = self._seconds_left(deadline_ms)
            if seconds <= 0:
                break
            try:
                signed = self._signed(request, servers[number])
                answered = await self._transport.send(servers[number], signed, seconds)
            except OSError as error:
                failure = _failure(servers[number], error, seconds)
                if not is_repeatable and not isinstance(error, ConnectionRefusedError):
                    raise self._unreachable(failure) from None
                continue
            if not (is_repeatable and _is_transient(answered)):
                self._preferred = number
                break
        return answered, failure

    def _seconds_left(self, deadline_ms: int) -> float:
        left_ms = deadline_ms - self._clock.monotonic_ms()
        return min(left_ms, self.settings.attempt_timeout_ms) / 1000

    def _unreachable(self, failure: str) -> RegistryUnreachableError:
        servers = ", ".join(map(str, self.settings.servers))
        return RegistryUnreachableError(f"the schema registry {servers} is unreachable: {failure}")

    def _signed(self, request: Request, server: Server) -> Request:
        user = server.user or self.settings.user
        if user is None:
            return request
        headers = {"Authorization": basic_authorization(user)}
        return Request(request.method, request.path, request.body, headers)


def _failure(server: Server, error: OSError, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"{server} did not answer within {seconds:g} s"
    return f"{server}: {error}"


def _is_transient(response: Response) -> bool:
    return response.status >= _SERVER_ERROR or response.status == _TOO_MANY


def parsed_body(response: Response) -> Any:
    """Return the JSON of a response; RegistryError if it is an error or not JSON."""
    try:
        answer = json.loads(response.body) if response.body else {}
    except ValueError:
        answer = None
    if response.status < 300 and answer is not None:
        return answer
    if isinstance(answer, dict) and "message" in answer:
        code = answer.get("error_code", response.status)
        code = code if isinstance(code, int) else response.status
        raise RegistryError(response.status, code, str(answer["message"]))
    quoted = response.body[:MESSAGE_CHARACTERS_MAX].decode("utf-8", "replace")
    raise RegistryError(
        response.status, response.status, f"{response.reason}: {quoted or 'an empty response'}"
    )


def _registered(answer: Mapping[str, Any], schema: Schema | None = None) -> RegisteredSchema:
    try:
        read = schema if schema is not None and "schema" not in answer else schema_from_json(answer)
        return RegisteredSchema(
            read,
            int(answer["id"]),
            answer.get("guid"),
            answer.get("subject"),
            answer.get("version"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RegistryError(200, 200, f"the response is not a schema: {error!r}") from None


def _key(schema: Schema) -> Any:
    """Return a hashable form of a schema."""
    if schema.metadata is None and schema.rule_set is None:
        return schema.type, schema.text, schema.references
    return json.dumps(schema_to_json(schema), sort_keys=True)


def _at(subject: str | None) -> str:
    return "" if subject is None else f"/{_quoted(subject)}"


def _mode(answer: Mapping[str, Any]) -> str:
    return str(answer.get("mode", ""))


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _query(**members: str | None) -> str:
    said = without_none(**members)
    return "?" + urlencode(said) if said else ""


def _flags(**flags: bool) -> str:
    return _query(**{name: "true" if value else None for name, value in flags.items()})
