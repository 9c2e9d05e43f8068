"""The event loop: uvloop's if it is installed, else asyncio's."""

import asyncio
import sys
from types import ModuleType

import pytest

from ottla.runtime import event_loop


class OtherLoop(asyncio.SelectorEventLoop):
    """An event loop from another package."""


async def loop_kind() -> type[asyncio.AbstractEventLoop]:  # noqa: RUF029
    return type(asyncio.get_running_loop())


def test_without_uvloop_it_is_asyncios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    kind = event_loop.run(loop_kind())
    assert issubclass(kind, asyncio.SelectorEventLoop)


def test_with_uvloop_it_is_that(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("uvloop")
    vars(package)["new_event_loop"] = OtherLoop
    monkeypatch.setitem(sys.modules, "uvloop", package)
    assert event_loop.run(loop_kind()) is OtherLoop
