"""Clients of the registry, at all brokers: they register, read and delete schemas.

Several clients register the same new texts at the same time. The checks of their responses are
in `registry_rules`.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Any, Final
from urllib.parse import quote

from ottla.concurrency.sleep import pause
from ottla.registry.http_messages import HttpRequest
from ottla.simulation.registry.registry_service import exchange
from ottla.simulation.world.machine import Machine, Program
from ottla.simulation.world.randomness import dice

SUBJECTS: Final = ("a", "b", ":.c:a")
EVERYWHERE: Final = "/config/:.__GLOBAL:"
DELETES: Final = 0.2
READS: Final = 0.3
PAUSE_MS_MAX: Final = 200
TEXTS_AT_ONCE: Final = 3
"""So many new texts are in use at a time: then clients meet."""
NEXT_TEXT: Final = 0.3
READ_SECONDS_MAX: Final = 3.0
WRITE_SECONDS_MAX: Final = 5.0
TRY_AGAIN_MS: Final = 100
LATE_TRIES_MAX: Final = 50
_HEADERS: Final = {"confluent-accept-unknown-properties": "true"}


@dataclass(frozen=True, slots=True)
class Place:
    """A schema at a version of a subject, as a response showed it."""

    subject: str
    version: int
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """An acknowledged delete of a version."""

    subject: str
    version: int
    is_permanent: bool


@dataclass(slots=True)
class RegistryHistory:
    """The responses to clients."""

    registered: list[Place] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    read: list[Place] = field(default_factory=list)
    texts: list[tuple[str, int, str]] = field(default_factory=list)
    """Of reads by id: a subject of the context, the id, the text."""
    unread: list[str] = field(default_factory=list)
    """Own writes that the same broker did not show afterwards."""
    refused: list[str] = field(default_factory=list)
    """Responses that no client may get: a status below 500 that is not expected."""


class RegistryWorkload:
    """`use` is the program of a client."""

    def __init__(self, brokers: Sequence[str], seed: int, *, has_deletes: bool) -> None:
        self.history = RegistryHistory()
        self.is_over = False
        self.has_deletes = has_deletes
        self._brokers = brokers
        self._seed = seed
        self._lives: dict[str, int] = {}
        self._newest = 0

    def programs(self, count: int) -> dict[str, Program]:
        """Return the programs of clients by machine."""
        return {f"registrar-{number}": self.use for number in range(count)}

    async def set_up(self, machine: Machine) -> None:
        """Allow every change of a schema; this write creates `_schemas`, too."""
        status = 0
        while status != 200:
            status, _ = await self._ask(
                machine, self._brokers[0], "PUT", EVERYWHERE, {"compatibility": "NONE"}
            )
            await pause(TRY_AGAIN_MS)

    async def use(self, machine: Machine) -> None:
        """Work until it is over."""
        life = self._lives[machine.name] = self._lives.get(machine.name, 0) + 1
        stream = dice(self._seed, f"registry:{machine.name}:{life}")
        while not self.is_over:
            broker, subject = stream.choice(self._brokers), stream.choice(SUBJECTS)
            drawn = stream.random()
            if self.has_deletes and drawn < DELETES:
                await self._delete(machine, broker, subject)
            elif drawn < DELETES + READS:
                await self._read(machine, broker, subject, stream)
            else:
                await self._register(machine, broker, subject, self._text(stream))
            await pause(stream.random() * PAUSE_MS_MAX)

    async def all_schemas(self, machine: Machine) -> dict[str, list[Place]]:
        """Return the schemas that each broker shows in the end; a broker may be a little late."""
        found: dict[str, list[Place]] = {}
        for _ in range(LATE_TRIES_MAX):
            found = {broker: await self._all_at(machine, broker) for broker in self._brokers}
            if all(places == found[self._brokers[0]] for places in found.values()):
                break
            await pause(TRY_AGAIN_MS)
        return found

    async def _all_at(self, machine: Machine, broker: str) -> list[Place]:
        while True:
            status, content = await self._ask(machine, broker, "GET", "/schemas?deleted=true")
            if status == 200:
                return [_place(one) for one in content]

    # -- operations -----------------------------------------------------------------------------

    def _text(self, stream: Random) -> str:
        self._newest += stream.random() < NEXT_TEXT
        size = max(1, self._newest - stream.randrange(TEXTS_AT_ONCE))
        schema = {"type": "fixed", "name": f"F{size}", "size": size}
        return json.dumps(schema, separators=(",", ":"))

    async def _register(self, machine: Machine, broker: str, subject: str, text: str) -> None:
        path = f"/subjects/{_quoted(subject)}/versions"
        status, content = await self._ask(machine, broker, "POST", path, {"schema": text})
        if status == 200:
            place = Place(subject, content["version"], content["id"], text)
            self.history.registered.append(place)
            if not self.has_deletes:
                await self._read_own(machine, broker, place)
        elif status < 500 and status != 0:
            self.history.refused.append(f"register {subject} {text}: {status} {content}")

    async def _read_own(self, machine: Machine, broker: str, place: Place) -> None:
        path = f"/subjects/{_quoted(place.subject)}/versions/{place.version}"
        status, content = await self._ask(machine, broker, "GET", path)
        if status == 404 or (status == 200 and _place(content) != place):
            self.history.unread.append(f"{broker} says {status} {content} after {place}")

    async def _read(self, machine: Machine, broker: str, subject: str, stream: Random) -> None:
        if stream.random() < 0.5:
            path = f"/subjects/{_quoted(subject)}/versions/latest"
            status, content = await self._ask(machine, broker, "GET", path)
            if status == 200:
                self.history.read.append(_place(content))
            return
        schema_id = stream.randint(1, self._newest + 1)
        path = f"/schemas/ids/{schema_id}?subject={_quoted(subject)}"
        status, content = await self._ask(machine, broker, "GET", path)
        if status == 200:
            self.history.texts.append((subject, schema_id, content["schema"]))

    async def _delete(self, machine: Machine, broker: str, subject: str) -> None:
        path = f"/subjects/{_quoted(subject)}/versions/latest"
        status, version = await self._ask(machine, broker, "DELETE", path)
        if status != 200:
            return
        self.history.deleted.append(Deleted(subject, version, is_permanent=False))
        path = f"/subjects/{_quoted(subject)}/versions/{version}?permanent=true"
        status, content = await self._ask(machine, broker, "DELETE", path)
        if status == 200:
            self.history.deleted.append(Deleted(subject, content, is_permanent=True))

    async def _ask(
        self, machine: Machine, broker: str, method: str, target: str, body: object = None
    ) -> tuple[int, Any]:
        """Return status and content; 0 if no response comes in time."""
        encoded = b"" if body is None else json.dumps(body).encode()
        request = HttpRequest(method, target, _HEADERS, encoded)
        seconds = READ_SECONDS_MAX if method == "GET" else WRITE_SECONDS_MAX
        with suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(seconds):
                response = await exchange(machine.network, broker, request)
            return response.status, json.loads(response.body)
        await pause(TRY_AGAIN_MS)
        return 0, None


def _place(content: Any) -> Place:
    return Place(content["subject"], content["version"], content["id"], content["schema"])


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
