"""How clients connect: the only part of the outside world that a client is given."""

from collections.abc import Awaitable, Callable

from ottla.environment.network import StreamSocket
from ottla.runtime.network import KernelNetwork

Connect = Callable[[str, int], Awaitable[StreamSocket]]
"""Gives a connection to a host and port, or raises `OSError`: `Network.connect` is one."""

connect: Connect = KernelNetwork().connect
"""Connects through the kernel, to the first address of the host that answers."""
