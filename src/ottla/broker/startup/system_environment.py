"""The real outside world: this machine's disks, clock, dice and network, and a real ZooKeeper."""

from ottla.broker.startup.environment import Environment
from ottla.environment.disk import Disk
from ottla.runtime import cold_reads
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.network import KernelNetwork
from ottla.runtime.process import boot_id, descriptors_max
from ottla.runtime.randomness import SystemRandomness
from ottla.zookeeper import sessions


def this_machine(host_name: str = "localhost", disk: Disk | None = None) -> Environment:
    """Return it, under a name that clients can reach it by."""
    return Environment(
        disk or KernelDisk(),
        SystemClock(),
        SystemRandomness(),
        cold_reads,
        host_name,
        KernelNetwork(),
        sessions.connect,
        boot_id(),
        descriptors_max(),
    )
