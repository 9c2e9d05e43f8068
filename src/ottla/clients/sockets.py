"""How clients connect: their only dependency on the operating system."""

from collections.abc import Awaitable, Callable

from ottla.environment.network import StreamSocket
from ottla.runtime.network import KernelNetwork

Connect = Callable[[str, int], Awaitable[StreamSocket]]
"""Opens a connection to a host and port, or raises OSError, like `Network.connect`."""

connect: Connect = KernelNetwork().connect
"""Connects through the kernel, to the host's first address that accepts."""
