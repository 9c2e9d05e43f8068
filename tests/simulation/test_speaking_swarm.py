"""Brokers keep sending and receiving while any of them dies, pauses or is cut off."""

import asyncio
from collections import Counter
from random import Random

import pytest

from ottla.model.error_code import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.simulation.speaking_brokers import Speakers

SEEDS = range(1, 7)
ROUNDS = 12
FAULTS = ("kill", "pause", "cut off", "nothing")


class Story:
    """Clients ask all brokers for topics and producer ids; no acknowledged change is lost."""

    def __init__(self, seed: int) -> None:
        self.speakers = Speakers(3, seed)
        self.dice = Random(seed)
        self.made: list[str] = []
        self.producer_ids: list[int] = []
        self.codes: Counter[ErrorCode] = Counter()
        self.is_over = False

    async def tell(self) -> None:
        for broker_id in self.speakers.ids:
            self.speakers.start(broker_id)
        await self.speakers.until_settled()
        clients = [asyncio.ensure_future(self.client(one)) for one in range(2)]
        for _ in range(ROUNDS):
            await self.fault(self.dice.choice(FAULTS), self.dice.choice(self.speakers.ids))
            await self.speakers.world.elapse(self.dice.random() * 3)
        self.is_over = True
        await asyncio.gather(*clients)
        await self.speakers.until_settled()
        image = self.speakers.image(0)
        assert not set(self.made) - set(image.topics)
        assert len(set(self.producer_ids)) == len(self.producer_ids)

    async def fault(self, kind: str, broker_id: int) -> None:
        speakers, world = self.speakers, self.speakers.world
        seconds = self.dice.random() * 10
        machine = speakers.machine(broker_id)
        others = [one for one in speakers.ids if one != broker_id]
        if kind == "kill":
            speakers.by_id.pop(broker_id, None)
            machine.kill()
            await world.elapse(seconds)
            speakers.start(broker_id)
        elif kind == "pause":
            machine.pause()
            await world.elapse(seconds)
            machine.resume()
        elif kind == "cut off":
            ways = [(f"b{broker_id}", f"b{one}") for one in others]
            for way in ways:
                world.network.block(*way)
            await world.elapse(seconds)
            for way in ways:
                world.network.unblock(*way)

    async def client(self, number: int) -> None:
        step = 0
        while not self.is_over:
            step += 1
            await self.speakers.world.elapse(self.dice.random())
            asked = self.dice.choice(self.speakers.ids)
            name = f"c{number}-{step}"
            try:
                code = await self.speakers.create(asked, name, client=f"client-{number}")
                self.codes[ErrorCode(code)] += 1
                if code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    self.made.append(name)
                request = InitProducerIdRequest(transactional_id=None)
                answer = await self.speakers.ask(asked, 4, request, client=f"client-{number}")
                if answer.error_code == ErrorCode.NONE:
                    self.producer_ids.append(answer.producer_id)
            except OSError:
                continue  # the broker is dead: ask another


@pytest.mark.parametrize("seed", SEEDS)
def test_no_acknowledged_decision_is_lost_and_all_brokers_converge(seed: int) -> None:
    story = Story(seed)
    story.speakers.world.run(story.tell())
    assert len(story.made) > 50, story.codes
    assert len(story.producer_ids) > 50
    assert set(story.codes) <= {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NOT_CONTROLLER,
    }
