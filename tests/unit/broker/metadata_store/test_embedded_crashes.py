"""Acknowledged decisions survive a crash at each disk operation, and a real kill."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import pytest

from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.metadata.image import ClusterImage
from ottla.model.api_error import ApiError
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import CrashMoment, Keep, SimulatedCrash
from ottla.wire.messages.delete_topics import DeleteTopicState
from tests.metadata_building import create, new_topic, open_store, register

ROOT: Final = Path(__file__).parents[4]
PARTITIONS: Final = 3
ANSWERS_PER_LIFE: Final = 15
CUTS: Final[list[tuple[Keep | None, int]]] = [
    (None, 0),
    ("lose_all", 0),
    ("keep_all", 0),
    ("random", 1),
    ("random", 2),
]
MOMENTS: Final[list[CrashMoment]] = ["before", "during"]


class Promises:
    """The responses that clients got, and the image that the broker published."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.gone: set[str] = set()
        self.asked: set[str] = set()
        self.seen: ClusterImage | None = None

    async def make(self, store: EmbeddedMetadataStore) -> None:
        """Create topics, some in sequence and some at once, and delete one."""
        store.subscribe(lambda image, _: setattr(self, "seen", image))
        await register(store)
        await self._create(store, "one", 1)
        await self._create(store, "two", 2)
        await asyncio.gather(
            *(self._create(store, name, number) for number, name in enumerate("abc", 3)),
            return_exceptions=True,
        )
        self.there.discard("one")
        await store.execute(lambda c: c.delete_topics([DeleteTopicState(name="one")]))
        self.gone.add("one")
        await store.close()

    async def _create(self, store: EmbeddedMetadataStore, name: str, number: int) -> None:
        self.asked.add(name)
        assert await create(store, new_topic(name, PARTITIONS, retention_ms="1"), number) == 0
        self.there.add(name)

    def check(self, image: ClusterImage) -> None:
        assert self.there <= image.topics.keys() <= self.asked
        assert not self.gone & image.topics.keys()
        for topic in image.topics.values():
            assert len(topic.partitions) == PARTITIONS, "half a decision"
            assert image.topic_settings(topic.name) == {"retention.ms": "1"}
        if self.seen is not None:
            assert image.end_offset >= self.seen.end_offset
            shown = self.seen.topics
            assert {n: image.topics.get(n) for n in shown if n != "one"} == {
                n: shown[n] for n in shown if n != "one"
            }


def play(disk: SimulatedDisk) -> Promises:
    """Run until the machine crashes."""
    promises = Promises()

    async def run() -> None:
        # Errors of tasks that die with the machine are expected.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await promises.make(open_store(disk))

    with suppress(SimulatedCrash, ApiError):
        asyncio.run(run())
    return promises


def crash(disk: SimulatedDisk, dice: Random, keep: Keep | None, seed: int) -> None:
    dice.seed(seed)
    if keep is None:
        disk.kill()
    else:
        disk.crash(keep)
    disk.faults.heal()


def operation_count() -> int:
    disk = SimulatedDisk()
    promises = play(disk)
    assert promises.there == {"two", "a", "b", "c"}
    return len(disk.faults.operations)


@pytest.mark.parametrize(("keep", "seed"), CUTS)
def test_acknowledged_decisions_survive_a_crash_at_each_operation(
    keep: Keep | None, seed: int
) -> None:
    for number in range(operation_count()):
        for moment in MOMENTS:
            dice = Random(0)
            disk = SimulatedDisk(dice)
            disk.faults.crash_at(number, moment)
            promises = play(disk)
            crash(disk, dice, keep, seed)
            again = open_store(disk)
            promises.check(again.image)
            crash(disk, dice, "lose_all", seed)
            assert open_store(disk).image == again.image, "what was shown once stays"


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_goes_on_after_a_crash_while_it_was_starting_after_a_crash(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    disk.faults.crash_at(operation_count() - 20, "during")
    promises = play(disk)
    disk.crash("random")
    for number in range(len(disk.faults.operations), len(disk.faults.operations) + 15):
        disk.faults.crash_at(number, "during")
        with suppress(SimulatedCrash):
            open_store(disk)
        disk.crash("random")
    disk.faults.heal()
    store = open_store(disk)
    promises.check(store.image)
    assert asyncio.run(_created(store, "more")) == 0


async def _created(store: EmbeddedMetadataStore, name: str) -> int:
    await register(store)
    return await create(store, new_topic(name), 50)


def test_acknowledged_decisions_survive_the_death_of_the_process(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    answered: set[str] = set()
    for life in ("first", "second"):
        killed = topics_until_killed(path, life)
        assert len(killed) >= ANSWERS_PER_LIFE
        answered |= killed
        image = open_store(KernelDisk(), [path]).image
        assert answered <= image.topics.keys()
        assert {len(topic.partitions) for topic in image.topics.values()} == {PARTITIONS}


def topics_until_killed(path: str, prefix: str) -> set[str]:
    """Let a process create topics, and kill it meanwhile."""
    maker = Path(__file__).with_name("topic_maker.py")
    with subprocess.Popen(
        [sys.executable, str(maker), path, prefix],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as process:
        assert process.stdout is not None
        answered = [process.stdout.readline() for _ in range(ANSWERS_PER_LIFE)]
        process.kill()
        answered += process.stdout.readlines()
    return {line.strip() for line in answered if line.endswith("\n")}
