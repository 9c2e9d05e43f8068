"""Version 2: the operations of consumer instances."""

import asyncio
from typing import Any, Final

from msgspec import Struct

from ottla.clients.consumer.state.offsets import OffsetAndMetadata
from ottla.concurrency.sleep import pause
from ottla.model.identifiers import TopicPartition
from ottla.model.linear_regex import Pattern
from ottla.rest.call import Answer, Call, Operation
from ottla.rest.consumer_instances import ConsumerInstance
from ottla.rest.embedded_formats import DataType
from ottla.rest.reading import WAIT_MS_MAX, take_records
from ottla.rest.rest_errors import RestError, instance_not_found, short, unprocessable
from ottla.rest.v2_topics import TYPE_BY_CONTENT_TYPE, bytes_limit, shown_records, v2_type
from ottla.wire.records.consumer_record import ConsumerRecord

TURN_SECONDS: Final = 0.2
"""How long a request that waits for records keeps others of the instance waiting."""
PATTERN_MS: Final = 30_000
"""How often topics are looked up for a pattern, if records are asked for."""
PARTITIONS_MAX: Final = 10_000
"""Partitions, offsets or topics in one request."""


class V2Subscription(Struct):
    """The body of a subscription."""

    topics: list[str] | None = None
    topic_pattern: str | None = None


class V2Partition(Struct):
    """A partition of a topic."""

    topic: str
    partition: int


class V2Partitions(Struct):
    """Partitions to read, or to ask about."""

    partitions: list[V2Partition]


class V2PartitionOffset(Struct):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class V2Offsets(Struct):
    """Positions, or offsets to commit."""

    offsets: list[V2PartitionOffset]


def _used(call: Call) -> Any:
    return call.services.instances.using(call.path["group"], call.path["instance"])


def _names(body: V2Partitions) -> list[TopicPartition]:
    _check_count(len(body.partitions))
    return [TopicPartition(row.topic, row.partition) for row in body.partitions]


def _check_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise unprocessable(f"A request names at most {PARTITIONS_MAX} partitions or topics.")


async def create_instance(call: Call) -> dict[str, str]:
    """Create an instance; return its name, and its URL at this proxy."""
    given = call.body or {}
    if not isinstance(given, dict):
        raise unprocessable("The body is an object with the settings of the instance.")
    await asyncio.sleep(0)  # noqa: TID251 - every operation is a coroutine
    group = call.path["group"]
    instance = call.services.instances.create(group, given)
    path = call.request.target.partition("?")[0].rstrip("/")
    return {
        "instance_id": instance.name,
        "base_uri": f"{call.base_url}{path}/instances/{instance.name}",
    }


async def delete_instance(call: Call) -> None:
    """End an instance."""
    await call.services.instances.delete(call.path["group"], call.path["instance"])


async def subscribe(call: Call) -> None:
    """Subscribe an instance to topics, or to all with names that match a pattern."""
    body: V2Subscription = call.body
    if bool(body.topics) == bool(body.topic_pattern):
        raise RestError(40903, "A subscription has either topics or a topic_pattern.")
    pattern = None if not body.topic_pattern else _compiled(body.topic_pattern)
    topics = body.topics or []
    _check_count(len(topics))
    for topic in topics:
        call.authorize(Operation.READ, "topic", topic)
    async with _used(call) as instance, instance.turn:
        if instance.consumer.assignment() and not instance.consumer.subscription():
            raise RestError(40903, "The instance has assigned partitions: delete it first.")
        instance.pattern = pattern
        if pattern is None:
            await instance.consumer.subscribe(topics)
        else:
            await _subscribe_matching(call, instance)


def _compiled(pattern: str) -> Pattern:
    try:
        return Pattern(pattern)
    except ValueError as error:
        raise RestError(42204, f"The topic_pattern is not valid: {short(error)}") from None


async def get_subscription(call: Call) -> dict[str, list[str]]:
    """Return the subscribed topics."""
    async with _used(call) as instance:
        return {"topics": sorted(instance.consumer.subscription())}


async def unsubscribe(call: Call) -> None:
    """Leave the group, and drop the assigned partitions."""
    async with _used(call) as instance, instance.turn:
        instance.pattern = None
        await instance.consumer.unsubscribe()


async def assign(call: Call) -> None:
    """Read exactly these partitions, without the group."""
    names = _names(call.body)
    for topic in sorted({name.topic for name in names}):
        call.authorize(Operation.READ, "topic", topic)
    async with _used(call) as instance, instance.turn:
        if instance.consumer.subscription():
            raise RestError(40903, "The instance has a subscription: delete that first.")
        instance.consumer.assign(names)


async def get_assignment(call: Call) -> dict[str, Any]:
    """Return the assigned partitions, by hand or by the group."""
    async with _used(call) as instance:
        return {"partitions": [_shown(name) for name in sorted(instance.consumer.assignment())]}


def _shown(name: TopicPartition) -> dict[str, Any]:
    return {"topic": name.topic, "partition": name.partition}


async def seek(call: Call) -> None:
    """Go on at these offsets."""
    body: V2Offsets = call.body
    _check_count(len(body.offsets))
    if any(row.offset < 0 for row in body.offsets):
        raise unprocessable("An offset is not less than 0.")
    async with _used(call) as instance, instance.turn:
        _check_assigned(
            instance, [TopicPartition(row.topic, row.partition) for row in body.offsets]
        )
        for row in body.offsets:
            instance.consumer.seek((row.topic, row.partition), row.offset)


async def seek_to_beginning(call: Call) -> None:
    """Go on with the first records of partitions."""
    names = _names(call.body)
    async with _used(call) as instance, instance.turn:
        _check_assigned(instance, names)
        instance.consumer.seek_to_beginning(*names)


async def seek_to_end(call: Call) -> None:
    """Go on with the next new records of partitions."""
    names = _names(call.body)
    async with _used(call) as instance, instance.turn:
        _check_assigned(instance, names)
        instance.consumer.seek_to_end(*names)


def _check_assigned(instance: ConsumerInstance, names: list[TopicPartition]) -> None:
    for name in names:
        if name not in instance.consumer.assignment():
            raise RestError(40903, f"The instance does not read {name}: assign it first.")


async def records(call: Call) -> Answer:
    """Return the next records; none after the timeout.

    A record that is not of the instance's format ends the response before it, and is an error if
    it is the first. The position stays at it: seek past it to go on.
    """
    async with _used(call) as instance:
        form = _checked_form(call, instance)
        wait_ms = min(call.integer("timeout", instance.wait_ms), WAIT_MS_MAX)
        bytes_max = bytes_limit(call)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        await _look_for_topics(call, instance)
        while True:
            seconds = max(min(TURN_SECONDS, deadline - loop.time()), 0)
            answer = await _turn(call, instance, form, seconds, bytes_max)
            if answer is not None:
                return answer
            if loop.time() >= deadline:
                return Answer([], content_type=v2_type(form))


async def _turn(
    call: Call, instance: ConsumerInstance, form: DataType, seconds: float, bytes_max: int
) -> Answer | None:
    async with instance.turn:
        if not call.services.instances.is_alive(instance):
            raise instance_not_found(instance.name)
        if instance.pattern is not None and not instance.consumer.subscription():
            await pause(seconds * 1000)  # no topic matches yet
            return None
        taken = await take_records(instance.consumer, seconds, bytes_max)
        return await _answer(call, instance, form, taken) if taken else None


async def _look_for_topics(call: Call, instance: ConsumerInstance) -> None:
    """Subscribe to new topics that match the pattern, and drop deleted ones."""
    now_ms = call.services.clock.monotonic_ms()
    if instance.pattern is None or now_ms - instance.looked_ms < PATTERN_MS:
        return
    async with instance.turn:
        await _subscribe_matching(call, instance)


async def _subscribe_matching(call: Call, instance: ConsumerInstance) -> None:
    assert instance.pattern is not None
    instance.looked_ms = call.services.clock.monotonic_ms()
    listed = await call.services.admin.topics.list(include_internal=False)
    topics = [topic.name for topic in listed if instance.pattern.matches(topic.name)]
    if set(topics) != instance.consumer.subscription():
        for topic in topics:
            call.authorize(Operation.READ, "topic", topic)
        await instance.consumer.subscribe(topics)


def _checked_form(call: Call, instance: ConsumerInstance) -> DataType:
    asked = TYPE_BY_CONTENT_TYPE.get(call.content_type, instance.form)
    if asked is not instance.form:
        raise RestError(
            40601,
            f"The instance has the format {instance.form.value.lower()}: the header Accept must "
            f"allow {v2_type(instance.form)}.",
        )
    return asked


async def _answer(
    call: Call, instance: ConsumerInstance, form: DataType, taken: list[ConsumerRecord]
) -> Answer:
    shown, failure = await shown_records(call, form, taken)
    if failure is not None:
        _go_back(instance, taken[len(shown) :])
        if not shown:
            raise failure
    return Answer(shown, content_type=v2_type(form))


def _go_back(instance: ConsumerInstance, unread: list[ConsumerRecord]) -> None:
    first_offset: dict[TopicPartition, int] = {}
    for record in unread:
        first_offset.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    assigned = instance.consumer.assignment()
    for name, offset in first_offset.items():
        if name in assigned:
            instance.consumer.seek(name, offset)


async def commit(call: Call) -> None:
    """Commit offsets of processed records, or without a body of all returned records.

    The committed offset is the given offset plus one: clients name the last record they processed,
    as with Confluent's proxy.
    """
    body: V2Offsets | None = call.body
    offsets = None
    if body is not None:
        _check_count(len(body.offsets))
        if any(row.offset < 0 for row in body.offsets):
            raise unprocessable("An offset is not less than 0.")
        offsets = {
            TopicPartition(row.topic, row.partition): OffsetAndMetadata(
                row.offset + 1, metadata=row.metadata or ""
            )
            for row in body.offsets
        }
    async with _used(call) as instance, instance.turn:
        await instance.consumer.commit(offsets)


async def committed(call: Call) -> dict[str, Any]:
    """Return the group's committed offsets of partitions; those without one are left out."""
    names = _names(call.body)
    async with _used(call) as instance, instance.turn:
        found = await instance.consumer.committed(names)
    return {
        "offsets": [
            {**_shown(name), "offset": row.offset, "metadata": row.metadata or ""}
            for name, row in sorted(found.items())
        ]
    }
