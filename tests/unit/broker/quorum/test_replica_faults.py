"""Faults by chance, while records are proposed: nothing that was acknowledged is lost."""

import asyncio
from random import Random

import pytest

from ottla.broker.quorum.quorum_log import LogSettings
from ottla.model.api_error import ApiError
from ottla.model.identifiers import Offset
from tests.examples import some
from tests.quorum_nodes import QuorumNode, batch_of
from tests.unit.broker.quorum.checked_lives import checked_lives
from tests.unit.broker.quorum.simulated_quorum import Quorum, commit

ACKNOWLEDGED_SECONDS = 0.05
FAULTS = 12


class FaultyQuorum:
    """Three voters, a steady stream of proposals, and a fault after the other."""

    def __init__(self, seed: int) -> None:
        self.quorum = Quorum(1, 2, 3, seed=seed)
        self.quorum.log_settings = LogSettings(segment_bytes=2000, retention_bytes=4000)
        self.dice = Random(seed)
        self.acknowledged: list[bytes] = []
        self.leader_by_epoch: dict[int, int] = {}

    async def run(self) -> None:
        quorum = self.quorum
        await quorum.start_all()
        await quorum.leader()
        proposing = asyncio.ensure_future(self._propose())
        for _ in range(FAULTS):
            await self._fault(self.dice.randint(1, 3))
            await quorum.elapse(self.dice.random() * 2)
        proposing.cancel()
        await self._check()

    async def _check(self) -> None:
        quorum = self.quorum
        leader = await quorum.leader()
        offset = await commit(leader, b"last")
        kept = leader.values()
        for node in quorum.nodes.values():
            await node.committed(offset)
            assert node.values() == kept
            assert node.failures == []
        assert [value for value in kept if value in self.acknowledged] == self.acknowledged
        assert len(self.acknowledged) > FAULTS

    # -- proposals --------------------------------------------------------------------------------

    async def _propose(self) -> None:
        number = 0
        while True:
            number += 1
            for node_id, node in list(self.quorum.nodes.items()):
                if node.replica.is_leader:
                    epoch = node.replica.epoch
                    assert self.leader_by_epoch.setdefault(epoch, node_id) == node_id
                    await self._propose_to(node, b"%d" % number)
            await self.quorum.elapse(0.01)

    async def _propose_to(self, node: QuorumNode, value: bytes) -> None:
        replica = node.replica
        epoch = replica.epoch
        try:
            offset = node.propose(value)
        except (ApiError, OSError):
            return  # The disk is full, or the process has ended.
        await self.quorum.elapse(ACKNOWLEDGED_SECONDS)
        is_still_leader = replica.is_leader and replica.epoch == epoch
        if is_still_leader and replica.high_watermark > offset:
            self.acknowledged.append(value)
            if self.dice.random() < 0.05:
                await self._save_snapshot(node)

    async def _save_snapshot(self, node: QuorumNode) -> None:
        end_offset = Offset(node.replica.high_watermark)
        image = batch_of(*node.values()) if node.values() else batch_of(b"nothing")
        await node.save_snapshot(end_offset, image)

    # -- faults -----------------------------------------------------------------------------------

    async def _fault(self, number: int) -> None:
        quorum, machine = self.quorum, self.quorum.machine(number)
        seconds = 0.05 + self.dice.random() * 4
        match self.dice.randint(1, 5):
            case 1:
                quorum.kill(number)
                await quorum.elapse(seconds)
                await quorum.start(number)
            case 2:
                machine.cut_power("random")
                quorum.nodes.pop(number)
                await quorum.elapse(seconds)
                await quorum.start(number)
            case 3:
                machine.pause()
                await quorum.elapse(seconds)
                machine.resume()
            case 4:
                quorum.cut(number)
                await quorum.elapse(seconds)
                quorum.mend(number)
            case 5:
                machine.disk.capacity_bytes = 1
                await quorum.elapse(seconds)
                machine.disk.capacity_bytes = None


@pytest.mark.parametrize("seed", some(range(8), 4))
def test_faults_by_chance_lose_nothing(seed: int) -> None:
    faulty = FaultyQuorum(seed)
    faulty.quorum.kraft_version = seed % 2
    with checked_lives(faulty.quorum) as checks:
        faulty.quorum.run(faulty.run())
        checks.check_durability()
    assert checks.truth_end > len(faulty.acknowledged)
