"""Real brokers for users' tests: one in a thread, or a cluster of processes.

with ottla.testing.Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Both are imported at first use, because pytest imports this package in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.broker_process import BrokerProcess
    from ottla.testing.child_process import ClusterError
    from ottla.testing.cluster import Cluster
    from ottla.testing.zookeeper_server import ZooKeeperServer

__all__ = ["Broker", "BrokerProcess", "Cluster", "ClusterError", "ZooKeeperServer"]

_MODULE_BY_NAME: Final = {
    "Broker": "ottla.testing.broker",
    "BrokerProcess": "ottla.testing.broker_process",
    "Cluster": "ottla.testing.cluster",
    "ClusterError": "ottla.testing.child_process",
    "ZooKeeperServer": "ottla.testing.zookeeper_server",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_BY_NAME[name]), name)
