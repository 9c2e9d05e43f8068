"""Several registries on one log, in virtual time: leaders change, brokers crash, replay is late.

Clients register schemas, and delete some. Their responses and the log at the end must agree: see
`violations`.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from ottla.concurrency.sleep import pause
from ottla.registry.http_application import RegistryApplication
from ottla.registry.http_messages import HttpRequest, HttpResponse
from ottla.registry.registry import Registry
from ottla.registry.registry_machine import RegistryMachine
from ottla.registry.registry_state import RegistryState
from ottla.registry.schemas_records import ConfigForm, SchemaValue, config_record, read_record
from ottla.simulation.world.virtual_loop import Trace, VirtualLoop
from tests.registries import Answer
from tests.schemas_log_twin import SchemasLogTwin, SharedLog

BROKERS = 3
CLIENTS = 4
SUBJECTS = ("a", "b", ":.c:a")
TEXTS = tuple(json.dumps({"type": "fixed", "name": f"F{n}", "size": n + 1}) for n in range(8))
REQUESTS = 25


@dataclass
class Acknowledged:
    """A registration that a client was told of."""

    subject: str
    text: str
    id: int
    version: int


@dataclass
class Story:
    """A run, by its seed."""

    seed: int
    deletes: bool
    shared: SharedLog = field(default_factory=SharedLog)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    failures: int = 0

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)
        self.applications: list[RegistryApplication | None] = [None] * BROKERS
        self.tasks: list[list[asyncio.Task[None]]] = [[] for _ in range(BROKERS)]

    async def run(self) -> None:
        self.shared.add(config_record(":.__GLOBAL:", ConfigForm(compatibility_level="NONE")))
        for broker in range(BROKERS):
            self.start(broker)
        self.shared.elect(0)
        nemesis = asyncio.ensure_future(self.trouble())
        await asyncio.gather(*[self.client() for _ in range(CLIENTS)])
        nemesis.cancel()

    def start(self, broker: int) -> None:
        log = SchemasLogTwin(self.shared, broker, self.delay_ms, self.fate)
        registry = Registry(log, RegistryMachine(), self.forward)
        self.applications[broker] = RegistryApplication(registry)
        self.tasks[broker] = [asyncio.ensure_future(registry.run())]

    def delay_ms(self) -> float:
        return self.dice.choice((0, 0, 1, 5, 40))

    def fate(self) -> str:
        return self.dice.choices(("", "lost", "refused"), (20, 1, 1))[0]

    async def forward(self, url: str, request: HttpRequest) -> HttpResponse:
        await pause(self.delay_ms())
        response = await self.at(int(url[-1]), request)
        await pause(self.delay_ms())
        return response

    async def at(self, broker: int, request: HttpRequest) -> HttpResponse:
        """Send a request to a broker; OSError if it crashes meanwhile."""
        application = self.applications[broker]
        if application is None:
            raise OSError("the broker is down")
        handled = application.handle(request)
        if isinstance(handled, HttpResponse):
            return handled
        task = asyncio.ensure_future(handled)
        self.tasks[broker].append(task)  # type: ignore[arg-type]
        try:
            return await task
        except asyncio.CancelledError:
            raise OSError("the broker crashed") from None

    async def trouble(self) -> None:
        """Change the leader, or crash a broker and start it again."""
        while True:
            await pause(self.dice.choice((20, 60, 200)))
            if self.dice.random() < 0.7:
                self.shared.elect(self.dice.choice((0, 1, 2, None)))
                continue
            broker = self.dice.randrange(BROKERS)
            self.applications[broker] = None
            for task in self.tasks[broker]:
                task.cancel()
            if self.shared.leader == broker:
                self.shared.elect(None)
            await pause(self.dice.choice((5, 100)))
            self.start(broker)
            if self.shared.leader is None:
                self.shared.elect(self.dice.randrange(BROKERS))

    async def client(self) -> None:
        for _ in range(REQUESTS):
            subject, broker = self.dice.choice(SUBJECTS), self.dice.randrange(BROKERS)
            if self.deletes and self.dice.random() < 0.3:
                await self.delete(subject, broker)
            else:
                await self.register(subject, self.dice.choice(TEXTS), broker)
            await pause(self.dice.choice((0, 1, 10)))

    async def delete(self, subject: str, broker: int) -> None:
        for query in ("", "?permanent=true"):
            await self.call(broker, "DELETE", f"/subjects/{subject}/versions/latest{query}")

    async def call(self, broker: int, method: str, target: str, body: object = None) -> Answer:
        headers = {"confluent-accept-unknown-properties": "true"}
        encoded = b"" if body is None else json.dumps(body).encode()
        try:
            response = await self.at(broker, HttpRequest(method, target, headers, encoded))
        except OSError:
            response = HttpResponse(500, b"{}")
        self.failures += response.status >= 500
        content = json.loads(response.body) if response.body else None
        return Answer(response.status, content, response)

    async def register(self, subject: str, text: str, broker: int) -> None:
        path = f"/subjects/{subject}/versions"
        answer = await self.call(broker, "POST", path, {"schema": text})
        if answer.status != 200:
            return
        schema_id, version = answer.content["id"], answer.content["version"]
        self.acknowledged.append(Acknowledged(subject, text, schema_id, version))
        if not self.deletes:
            target = f"/schemas/ids/{schema_id}?subject={subject}"
            read = await self.call(broker, "GET", target)
            if read.status == 404:
                self.unread.append(f"{subject}: id {schema_id} cannot be read after its response")


def violations(story: Story) -> Iterator[str]:
    """Yield the rules that a run broke."""
    yield from story.unread
    values = [read_record(one.key, one.value).value for one in story.shared.records]
    registered = [value for value in values if isinstance(value, SchemaValue)]
    yield from _id_violations(registered)
    yield from _lost(story, registered)
    if not story.deletes:
        yield from _version_violations(registered)


def _context(value: SchemaValue) -> str:
    return ".c" if value.subject.startswith(":.c:") else "."


def _id_violations(registered: list[SchemaValue]) -> Iterator[str]:
    text_by_id: dict[tuple[str, int], str] = {}
    for value in registered:
        known = text_by_id.setdefault((_context(value), value.id), value.schema)
        if known != value.schema:
            yield f"id {value.id} of context {_context(value)} was given twice"


def _version_violations(registered: list[SchemaValue]) -> Iterator[str]:
    versions: dict[str, int] = {}
    ids_by_text: dict[tuple[str, str], set[int]] = {}
    for value in registered:
        last = versions.get(value.subject, 0)
        if value.version != last + 1:
            yield f"version {value.version} of {value.subject} came after {last}"
        versions[value.subject] = value.version
        ids_by_text.setdefault((_context(value), value.schema), set()).add(value.id)
    for (_, text), ids in ids_by_text.items():
        if len(ids) > 1:
            yield f"{text} has the ids {ids}"


def _lost(story: Story, registered: list[SchemaValue]) -> Iterator[str]:
    state = RegistryState()
    for record in story.shared.records:
        state.replay(record)
    places = {
        (value.subject, value.version, value.id, _spaced(value.schema)) for value in registered
    }
    for one in story.acknowledged:
        if (one.subject, one.version, one.id, one.text) not in places:
            yield f"{one} is not in the log"
        if not story.deletes and state.versions(one.subject)[one.version].stored.id != one.id:
            yield f"{one} is lost"


def _spaced(text: str) -> str:
    return json.dumps(json.loads(text))


def run(seed: int, *, deletes: bool = False) -> Story:
    """Run a story in virtual time."""
    story = Story(seed, deletes)
    loop = VirtualLoop(Random(seed), Trace())
    asyncio.set_event_loop(None)
    try:
        loop.run_until_complete(story.run())
        loop.run_until_complete(_end(story))
    finally:
        loop.close()
    return story


async def _end(story: Story) -> None:
    tasks = [task for tasks in story.tasks for task in tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
