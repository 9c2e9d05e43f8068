"""Consumer instances of version 2: consumers that live between requests.

An instance belongs to one proxy: requests must come to the broker that created it. It ends when it
is deleted, or after five minutes without a request; a request that waits for records counts.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.errors import ConsumerError
from ottla.concurrency.sleep import pause
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.rest.embedded_formats import TYPE_BY_FORMAT, DataType
from ottla.rest.reading import FETCHED_BYTES_MAX
from ottla.rest.rest_errors import RestError, instance_not_found, short

if TYPE_CHECKING:
    from ottla.model.linear_regex import Pattern

IDLE_MS_MAX: Final = 300_000
"""After so long without a request an instance ends."""
INSTANCES_MAX: Final = 256
"""Consumer instances of one proxy."""
NAME_CHARACTERS_MAX: Final = 200
SWEEP_MS: Final = 1_000
CLOSE_SECONDS_MAX: Final = 5.0
DEFAULT_WAIT_MS: Final = 1_000
_NAME = re.compile(r"[\w.~-]+", re.ASCII)
_SETTINGS: Final = frozenset(
    {
        "auto.offset.reset",
        "fetch.min.bytes",
        "fetch.max.wait.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "client.rack",
        "group.instance.id",
    }
)
"""Settings of a consumer that a request may set."""
_log = logging.getLogger(__name__)


class ConsumerInstance:
    """One consumer. Requests about it take turns; a waiting one lets others in between."""

    def __init__(
        self, group: str, name: str, form: DataType, consumer: AsyncConsumer, wait_ms: int
    ) -> None:
        self.group = group
        self.name = name
        self.form = form
        self.consumer = consumer
        self.wait_ms = wait_ms
        """How long a request for records waits by default."""
        self.pattern: Pattern | None = None
        """Of the subscribed topics."""
        self.looked_ms = 0
        self.turn = asyncio.Lock()
        self.used_ms = 0
        self.use_count = 0

    async def close(self) -> None:
        """Leave the group and close the connections."""
        try:
            async with self.turn:
                await self.consumer.close(CLOSE_SECONDS_MAX)
        except Exception as error:  # noqa: BLE001 - it is gone, however its group took that
            _log.warning("consumer instance %s was not closed cleanly: %s", self.name, error)


class ConsumerInstances:
    """The instances of one proxy, by group and name."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        clock: Clock,
        randomness: Randomness,
        instances_max: int = INSTANCES_MAX,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._instances_max = instances_max
        self._by_name: dict[tuple[str, str], ConsumerInstance] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_name)

    def create(self, group: str, given: Mapping[str, Any]) -> ConsumerInstance:
        """Create an instance.

        RestError 40902 if the name is in use, 42204 for an invalid setting, 429 above the limit.
        """
        if not group:
            raise RestError(42204, "The name of a group is not empty.")
        name = self._name(given.get("name"))
        if (group, name) in self._by_name:
            raise RestError(40902, f"Consumer instance '{name}' of group '{short(group)}' exists.")
        if len(self._by_name) >= self._instances_max:
            raise RestError(
                429, f"There are {self._instances_max} consumer instances: delete one first."
            )
        form = _form(given.get("format"))
        wait_ms = _wait_ms(given.get("consumer.request.timeout.ms"))
        try:
            consumer = AsyncConsumer(self._consumer_settings(group, given))
        except InvalidClientSettingError as invalid:
            raise RestError(42204, f"Invalid consumer configuration: {short(invalid)}") from None
        instance = ConsumerInstance(group, name, form, consumer, wait_ms)
        instance.used_ms = self._clock.monotonic_ms()
        self._by_name[group, name] = instance
        return instance

    def _name(self, given: Any) -> str:
        if not given:
            return f"rest-consumer-{self._randomness.uuid().hex()}"
        name = str(given)
        if _NAME.fullmatch(name) is None or len(name) > NAME_CHARACTERS_MAX:
            raise RestError(
                42204,
                "The name of an instance has letters, digits and . _ ~ - only, at most "
                f"{NAME_CHARACTERS_MAX}.",
            )
        return name

    def _consumer_settings(self, group: str, given: Mapping[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {
            **self._settings,
            "group.id": group,
            "fetch.max.bytes": FETCHED_BYTES_MAX,
            "max.poll.interval.ms": 2 * IDLE_MS_MAX,
        }
        for name, value in given.items():
            if value is None or name in {"name", "id", "format", "consumer.request.timeout.ms"}:
                continue
            if name in {"auto.commit.enable", "enable.auto.commit"}:
                settings["enable.auto.commit"] = str(value).lower()
            elif name not in _SETTINGS:
                raise RestError(42204, f"Invalid consumer configuration: no setting {short(name)}")
            elif not (name == "fetch.min.bytes" and str(value) == "-1"):
                settings[name] = str(value)
        return settings

    @asynccontextmanager
    async def using(self, group: str, name: str) -> AsyncIterator[ConsumerInstance]:
        """Hold an instance during a request; RestError 40403 if there is none."""
        instance = self._by_name.get((group, name))
        if instance is None:
            raise instance_not_found(name)
        instance.use_count += 1
        try:
            yield instance
        except ConsumerError as error:
            raise RestError(40903, short(error)) from None
        finally:
            instance.use_count -= 1
            instance.used_ms = self._clock.monotonic_ms()

    def is_alive(self, instance: ConsumerInstance) -> bool:
        """Whether the instance was not deleted during a wait."""
        return self._by_name.get((instance.group, instance.name)) is instance

    async def delete(self, group: str, name: str) -> None:
        """End an instance; RestError 40403 if there is none."""
        instance = self._by_name.pop((group, name), None)
        if instance is None:
            raise instance_not_found(name)
        await instance.close()

    def expire(self) -> None:
        """End the instances that are idle for too long, in the background."""
        now_ms = self._clock.monotonic_ms()
        for key, instance in list(self._by_name.items()):
            if not instance.use_count and now_ms - instance.used_ms >= IDLE_MS_MAX:
                _log.info("consumer instance %s ends: it was idle for too long", instance.name)
                del self._by_name[key]
                task = asyncio.ensure_future(instance.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def sweep(self) -> None:
        """Call `expire` again and again, until cancelled."""
        while True:
            await pause(SWEEP_MS)
            self.expire()

    async def close(self) -> None:
        """End all instances."""
        instances = list(self._by_name.values())
        self._by_name.clear()
        await asyncio.gather(*self._closing, *(instance.close() for instance in instances))


def _form(given: Any) -> DataType:
    form = TYPE_BY_FORMAT.get(str(given or "binary").lower())
    if form is None:
        words = ", ".join(TYPE_BY_FORMAT)
        raise RestError(42204, f"Invalid consumer configuration: format is one of {words}.")
    return form


def _wait_ms(given: Any) -> int:
    if given is None:
        return DEFAULT_WAIT_MS
    digits = str(given)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise RestError(
            42204, "Invalid consumer configuration: consumer.request.timeout.ms is a number."
        )
    return int(digits)
