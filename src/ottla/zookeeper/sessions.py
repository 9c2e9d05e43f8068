"""Connects to a real ZooKeeper; kazoo is imported only if a broker needs it."""

from ottla.environment.zookeeper import ZooKeeperSession
from ottla.model.settings.settings import InvalidSettingsError


async def connect(hosts: str, timeout_seconds: float) -> ZooKeeperSession:
    """Begin a session, as `kazoo_session.connect` does; InvalidSettingsError without kazoo."""
    try:
        from ottla.zookeeper import kazoo_session  # noqa: PLC0415 - most brokers do without
    except ImportError as error:
        problem = "zookeeper.connect needs kazoo, which comes with the extra ottla[zookeeper]"
        raise InvalidSettingsError([problem]) from error
    return await kazoo_session.connect(hosts, timeout_seconds)
