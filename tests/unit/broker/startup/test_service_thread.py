"""A service beside the broker, on a thread of its own."""

import asyncio
import sys

from ottla.broker.startup.service_thread import SWITCH_SECONDS, ServiceThread


def test_the_event_loop_of_the_broker_gets_the_interpreter_soon_from_a_service() -> None:
    async def story() -> float:
        serving = asyncio.Event()
        here = asyncio.get_running_loop()

        async def serve(stopping: asyncio.Event) -> None:
            here.call_soon_threadsafe(serving.set)
            await stopping.wait()

        thread = ServiceThread("test service", [], serve, 10.0)
        thread.start()
        await serving.wait()
        seconds = sys.getswitchinterval()
        await thread.close()
        return seconds

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        assert asyncio.run(story()) <= SWITCH_SECONDS
    finally:
        sys.setswitchinterval(before)
