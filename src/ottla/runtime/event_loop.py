"""The broker's event loop: uvloop if it is installed, else asyncio's own."""

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

_T = TypeVar("_T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return the fastest available loop."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end on a new loop, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
