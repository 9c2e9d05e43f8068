"""The outside world, as a broker is given it."""

import sys
from dataclasses import dataclass

from ottla.broker.transport.response_writer import ColdReads
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.network import Network
from ottla.environment.randomness import Randomness
from ottla.environment.zookeeper import ConnectToZooKeeper


@dataclass(frozen=True, slots=True)
class Environment:
    """The outside world."""

    disk: Disk
    clock: Clock
    randomness: Randomness
    cold_reads: ColdReads
    host_name: str
    network: Network
    connect_to_zookeeper: ConnectToZooKeeper | None = None
    """Only a broker needs it that has `zookeeper.connect`."""
    boot_id: str | None = None
    """Different after every start of the machine; None if unknown."""
    descriptors_max: int = sys.maxsize
    """How many files and connections this process may have open."""
