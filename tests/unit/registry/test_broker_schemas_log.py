"""`_schemas` on a real broker: appends with the checks of a leader, and reads that wait."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.aio import Admin, Producer
from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.system_environment import this_machine
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.broker_config import BrokerConfig
from ottla.registry.broker_schemas_log import LOST, NOOP, SCHEMAS_TOPIC, BrokerSchemasLog
from ottla.registry.schemas_log import EndMovedError, Leadership, NotLeaderError, SchemasRecord

RECORD = ((b"key", b"value"),)
SECONDS_MAX = 240


class World:
    """A broker, its log of schemas, and an admin client."""

    def __init__(self, broker: Broker, log: BrokerSchemasLog, admin: Admin) -> None:
        address = broker.endpoints.advertised("PLAINTEXT")
        self.servers = f"{address.host}:{address.port}"
        self.broker = broker
        self.log = log
        self.admin = admin

    async def led(self) -> Leadership:
        await self.log.ensure_topic()
        leadership = self.log.leadership()
        assert leadership is not None
        return leadership

    async def all_records(self, offset: int = 0) -> list[SchemasRecord]:
        found: list[SchemasRecord] = []
        async for part in self.log.read(offset):
            if not part:
                return found
            found += part
        raise AssertionError("a read never ends")


async def read_on(reading: AsyncIterator[list[SchemasRecord]]) -> None:
    async for _ in reading:
        pass


def run(tmp_path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def tell() -> None:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "ottla.admin.listener": "",
        }
        config = BrokerConfig.parse(settings)
        broker = await Broker.start(config, this_machine())
        address = broker.endpoints.advertised("PLAINTEXT")
        try:
            log = BrokerSchemasLog(broker.access())
            await log.open()
            async with Admin(bootstrap_servers=f"{address.host}:{address.port}") as admin:
                await story(World(broker, log, admin))
            await log.close()
        finally:
            await broker.stop()

    asyncio.run(asyncio.wait_for(tell(), SECONDS_MAX))


def test_without_a_topic_there_is_nothing_to_read_and_no_leader(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        assert world.log.leadership() is None
        assert world.log.leader_url() is None
        assert await world.log.end_offset() == 0
        assert await world.all_records() == []

    run(tmp_path, story)


def test_the_topic_is_compacted_and_is_created_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await asyncio.gather(*(world.log.ensure_topic() for _ in range(3)))
        topic = world.broker.metadata.store.image.topics[SCHEMAS_TOPIC]
        assert len(topic.partitions) == 1
        partition = next(iter(world.broker.partitions))
        assert partition.log.config.cleanup_policy == {"compact"}
        assert await world.led() == Leadership(0, 0)

    run(tmp_path, story)


def test_what_is_appended_is_committed_and_read_in_order(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        assert await world.log.append(((b"a", b"1"), (b"b", None)), led, 0) == 2
        assert await world.log.append(((b"c", b""),), led, 2) == 3
        assert await world.log.end_offset() == 3
        found = await world.all_records()
        assert [(one.offset, one.key, one.value) for one in found] == [
            (0, b"a", b"1"),
            (1, b"b", None),
            (2, b"c", b""),
        ]
        assert [one.offset for one in await world.all_records(1)] == [1, 2]

    run(tmp_path, story)


def test_a_reader_at_the_end_gets_the_next_record_as_soon_as_it_is_committed(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        reading = aiter(world.log.read(0))
        assert await anext(reading) == []
        waiting = asyncio.ensure_future(anext(reading))
        await world.log.append(RECORD, led, 0)
        assert [one.key for one in await waiting] == [b"key"]
        assert await anext(reading) == []

    run(tmp_path, story)


def test_a_reader_that_waits_for_the_topic_goes_on_when_it_is_created(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        reading = aiter(world.log.read(0))
        assert await anext(reading) == []
        waiting = asyncio.ensure_future(anext(reading))
        await world.log.append(RECORD, await world.led(), 0)
        found = await waiting
        while not found:
            found = await anext(reading)
        assert [one.value for one in found] == [b"value"]

    run(tmp_path, story)


def test_a_decision_on_an_old_end_is_not_appended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        await world.log.append(RECORD, led, 0)
        with pytest.raises(EndMovedError, match="_schemas-0 ends at 1, not at 0"):
            await world.log.append(RECORD, led, 0)
        assert await world.log.end_offset() == 1

    run(tmp_path, story)


def test_of_two_decisions_on_the_same_end_one_is_appended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        outcomes = await asyncio.gather(
            *(world.log.append(RECORD, led, 0) for _ in range(4)), return_exceptions=True
        )
        assert sorted(map(repr, map(type, outcomes))) == [repr(int)] + 3 * [repr(EndMovedError)]
        assert await world.log.end_offset() == 1

    run(tmp_path, story)


def test_a_decision_of_another_epoch_is_not_appended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        with pytest.raises(NotLeaderError, match="is not led here in epoch 1"):
            await world.log.append(RECORD, Leadership(led.epoch + 1, 0), 0)
        assert await world.log.end_offset() == 0

    run(tmp_path, story)


def test_a_record_that_is_too_large_is_refused_and_not_appended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        with pytest.raises(ApiError) as refused:
            await world.log.append(((b"key", bytes(9 << 20)),), led, 0)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert await world.log.end_offset() == 0

    run(tmp_path, story)


def test_a_reader_learns_that_the_topic_was_deleted(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.log.append(RECORD, await world.led(), 0)
        reading = aiter(world.log.read(0))
        assert len(await anext(reading)) == 1
        await world.admin.topics.delete(SCHEMAS_TOPIC)
        with pytest.raises(ApiError, match="_schemas was deleted") as lost:
            await read_on(reading)
        assert lost.value.code is LOST
        await world.admin.topics.create(SCHEMAS_TOPIC, partitions=1)
        assert world.log.leadership() is None
        again = BrokerSchemasLog(world.broker.access())
        await again.open()
        assert again.leadership() == Leadership(0, 0)
        await again.close()

    run(tmp_path, story)


def test_the_end_of_a_transaction_leaves_no_gap(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        settings = {"bootstrap.servers": world.servers, "transactional.id": "copier"}
        async with Producer(settings) as producer, producer.transaction():
            await producer.send(SCHEMAS_TOPIC, b"copied", key=b"key")
        found = await world.all_records()
        assert [(one.offset, one.key) for one in found] == [(0, b"key"), (1, NOOP)]
        assert await world.log.append(RECORD, led, 2) == 3

    run(tmp_path, story)


def test_records_of_aborted_transactions_are_left_out(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = await world.led()
        settings = {"bootstrap.servers": world.servers, "transactional.id": "copier"}
        async with Producer(settings) as producer:
            with suppress(InterruptedError):
                async with producer.transaction():
                    await producer.send(SCHEMAS_TOPIC, b"aborted", key=b"key")
                    await producer.flush()
                    raise InterruptedError
            async with producer.transaction():
                await producer.send(SCHEMAS_TOPIC, b"copied", key=b"key")
        found = await world.all_records()
        assert [one.value for one in found if one.key != NOOP] == [b"copied"]
        end_offset = await world.log.end_offset()
        assert found[-1].offset + 1 == end_offset
        assert await world.log.append(RECORD, led, end_offset) == end_offset + 1

    run(tmp_path, story)


def test_records_of_an_open_transaction_are_read_after_its_end(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.led()
        settings = {"bootstrap.servers": world.servers, "transactional.id": "copier"}
        async with Producer(settings) as producer, producer.transaction():
            await producer.send(SCHEMAS_TOPIC, b"copied", key=b"key")
            await producer.flush()
            assert await world.all_records() == []
            assert await world.log.end_offset() == 0
        assert [one.key for one in await world.all_records()] == [b"key", NOOP]

    run(tmp_path, story)


def test_a_topic_with_several_partitions_is_refused(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.admin.topics.create(SCHEMAS_TOPIC, partitions=2)
        with pytest.raises(ApiError, match="has 2 partitions and must have one") as refused:
            await world.log.ensure_topic()
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS

    run(tmp_path, story)
