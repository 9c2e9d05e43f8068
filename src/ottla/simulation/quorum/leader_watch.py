"""Q12: a leader that a majority can reach is not replaced."""

from typing import Final

from ottla.simulation.quorum.checks import InvariantError
from ottla.simulation.quorum.replica import Replica
from ottla.simulation.quorum.world import QuorumWorld

LOOK_MS: Final = 50
REACHED_MS: Final = 5_000
"""After this time the voters have found the leader, and wait for no lost or late message."""


class LeaderWatch:
    """Looks at the leader, and at the replicas that reach it, all the time.

    A leader must last once the same majority of its voters has run, heard it and been heard by it
    for some seconds. That is judged only while no replica has seen a higher epoch. A candidate of
    an earlier time may have one, and each replica must take it over, as in Kafka.
    """

    def __init__(self, world: QuorumWorld) -> None:
        self._world = world
        self._leader: Replica | None = None
        self._life = self._epoch = self._since_ms = 0
        self._reaching: set[tuple[int, int]] = set()
        """The replicas that have reached the leader since then, with their lives."""

    def begin(self) -> None:
        """Look now, and from now on."""
        self._look()
        self._world.after(LOOK_MS, self.begin)

    def _look(self) -> None:
        leader, now_ms = self._leader, self._world.now_ms
        if leader is not None and self._is_present(leader):
            self._reaching &= self._reach(leader)
            if leader.leads and leader.machine.epoch == self._epoch:
                if not (self._has_majority(leader) and self._is_newest()):
                    self._begin_watch(leader)
                return
            if now_ms - self._since_ms >= REACHED_MS and self._has_majority(leader):
                detail = f"{leader} has led epoch {self._epoch}, with a majority in reach"
                raise InvariantError("Q12", detail)
        found = self._world.leader
        self._leader = None
        if found is not None:
            self._begin_watch(found)

    def _begin_watch(self, leader: Replica) -> None:
        self._leader, self._since_ms = leader, self._world.now_ms
        self._life, self._epoch = leader.life, leader.machine.epoch
        self._reaching = self._reach(leader)

    def _is_present(self, leader: Replica) -> bool:
        return (
            leader.is_up
            and leader.life == self._life
            and not leader.is_paused
            and not leader.is_stopping
            and leader.machine.core.is_voter
        )

    def _is_newest(self) -> bool:
        return all(disk.election.epoch <= self._epoch for disk in self._world.disks.values())

    def _has_majority(self, leader: Replica) -> bool:
        voters = leader.machine.core.voters
        lives = {(key.id, self._world.replicas[key.id].life) for key in voters.keys}
        return len(lives & self._reaching) >= voters.majority

    def _reach(self, leader: Replica) -> set[tuple[int, int]]:
        hurt_ms = self._world.network.hurt_ms
        found = set()
        for replica in self._world.replicas.values():
            links = ((leader.number, replica.number), (replica.number, leader.number))
            is_whole = all(hurt_ms.get(link, -1) < self._since_ms for link in links)
            is_here = replica.is_up and not replica.is_paused
            if is_here and (is_whole or replica is leader):
                found.add((replica.number, replica.life))
        return found
