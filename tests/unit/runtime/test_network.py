"""Socket options of the kernel network; other networks have none."""

import asyncio
from contextlib import ExitStack, suppress
from socket import (
    AF_INET,
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SO_SNDBUF,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_NODELAY,
    create_server,
    socket,
)
from typing import Any

import pytest

from ottla.runtime import network
from ottla.runtime.network import KernelNetwork

HOST = "127.0.0.1"
SEND_BUFFER_BYTES = 12_345


async def pair() -> tuple[socket, socket]:
    """Return both ends of a connection: the connecting and the accepting socket."""
    network = KernelNetwork()
    (listening,) = await network.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    came = loop.create_future()
    loop.add_reader(listening, came.set_result, None)
    near = await network.connect(HOST, listening.getsockname()[1])
    await came
    loop.remove_reader(listening)
    far, _ = listening.accept()
    listening.close()
    assert isinstance(near, socket)
    return near, far


def test_both_ends_send_at_once_and_never_block() -> None:
    for end in asyncio.run(pair()):
        assert end.getsockopt(IPPROTO_TCP, TCP_NODELAY)
        assert not end.getblocking()
        end.close()


def test_the_kernel_keeps_as_much_as_it_is_told_and_as_much_again() -> None:
    near, far = asyncio.run(pair())
    KernelNetwork().set_send_buffer(far, SEND_BUFFER_BYTES)
    assert far.getsockopt(SOL_SOCKET, SO_SNDBUF) == 2 * SEND_BUFFER_BYTES
    near.close()
    far.close()


def test_a_peer_that_has_vanished_is_noticed_in_the_end() -> None:
    near, far = asyncio.run(pair())
    assert far.getsockopt(SOL_SOCKET, SO_KEEPALIVE)
    near.close()
    far.close()


def test_a_cancelled_connect_leaves_nothing_open() -> None:
    async def story() -> None:
        async with asyncio.timeout(0):
            await KernelNetwork().connect(HOST, 1)

    with pytest.raises(TimeoutError):  # a socket left open is a warning, which is an error
        asyncio.run(story())


def test_a_host_without_an_address_is_told_as_the_resolver_tells_it() -> None:
    async def story() -> None:
        await KernelNetwork().connect("no-such-host.invalid", 1)

    with pytest.raises(OSError, match=r"Name|name|service"):
        asyncio.run(story())


@pytest.mark.parametrize("host", ["x" * 300, "a..b", "\ud800"])
def test_a_host_that_is_no_name_is_an_os_error(host: str) -> None:
    async def story() -> None:
        await KernelNetwork().connect(host, 1)

    with pytest.raises(OSError, match=r"no host name|Name|name|service"):
        asyncio.run(story())


def listen_on_one_port(stack: ExitStack, silent: str, host: str) -> int:
    """Listen on two addresses with the same port, which no other process may have on either."""
    while True:
        with ExitStack() as opened:
            first = opened.enter_context(create_server((silent, 0), backlog=0))
            port: int = first.getsockname()[1]
            with suppress(OSError):
                opened.enter_context(create_server((host, port)))
                stack.enter_context(opened.pop_all())
                return port


def test_an_address_that_swallows_everything_does_not_stand_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "ADDRESS_SECONDS_MAX", 0.1)

    async def story(port: int) -> None:
        async def both(  # noqa: RUF029 - in the place of a coroutine
            host: str, port: int, **_: Any
        ) -> list[Any]:
            return [(AF_INET, SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", HOST)]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
        connected = await KernelNetwork().connect("two-faced", port)
        assert isinstance(connected, socket)
        assert connected.getpeername() == (HOST, port)
        connected.close()

    with ExitStack() as stack:
        port = listen_on_one_port(stack, "127.0.0.2", HOST)
        for _ in range(4):  # without accept the backlog fills, and the kernel stops responding
            full = stack.enter_context(socket())
            full.setblocking(False)
            full.connect_ex(("127.0.0.2", port))
        asyncio.run(story(port))
