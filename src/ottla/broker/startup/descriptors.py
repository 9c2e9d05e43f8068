"""How a broker divides its process's file descriptors.

Logs and connections each have a share, so that new connections do not keep logs from being opened.
The rest is for short-lived uses: indexes, directories, checkpoints. A log that could not open one
of them in the middle of a truncation would have to go offline.
"""

from threading import Lock
from typing import Final, NamedTuple

from ottla.broker.startup.environment import Environment
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.files.open_files import OPEN_FILES_MAX
from ottla.storage.log_dirs.log_dirs import LogDirs

RESERVED: Final = 128
"""Descriptors for other uses than logs and client connections."""
_SHARE: Final = 4
"""Where there are few, one in so many is for logs, and as many are reserved."""


class DescriptorShares(NamedTuple):
    """How many descriptors each may have."""

    logs: int
    """Files that are kept open. As many again may be in use by responses being sent."""
    connections: int


def make_log_dirs(config: BrokerConfig, environment: Environment) -> LogDirs:
    """Create the log dirs of a broker, which keep their share of files open."""
    shares = share_descriptors(environment.descriptors_max)
    return LogDirs(environment.disk, config.log_dirs, open_files_max=shares.logs, guard=Lock())


def share_descriptors(descriptors_max: int) -> DescriptorShares:
    """Divide the descriptors that a process may have."""
    logs = min(OPEN_FILES_MAX, descriptors_max // _SHARE // 2)
    reserved = min(RESERVED, descriptors_max // _SHARE)
    return DescriptorShares(logs, descriptors_max - 2 * logs - reserved)
