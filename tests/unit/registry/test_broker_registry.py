"""The registry of a broker from its start to its end."""

import asyncio
import json
import socket
from pathlib import Path

from ottla.aio import Producer
from ottla.registry.broker_registry import serve
from ottla.registry.broker_schemas_log import SCHEMAS_TOPIC
from ottla.registry.forwarding import Forwarder
from ottla.registry.http_server import HttpRequest
from tests.unit.registry.test_broker_schemas_log import World, run


def test_a_write_in_progress_is_answered_before_the_registry_ends(tmp_path: Path) -> None:
    """An open transaction holds the write up until the stop has begun."""

    async def story(world: World) -> None:
        await world.led()
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        stopping = asyncio.Event()
        serving = asyncio.ensure_future(serve(world.broker.access(), [listener], stopping))
        body = json.dumps({"schema": '"int"'}).encode()
        request = HttpRequest("POST", "/subjects/a/versions", {}, body)
        read = HttpRequest("GET", "/subjects", {})
        assert (await Forwarder()(url, read)).status == 200
        settings = {"bootstrap.servers": world.servers, "transactional.id": "copier"}
        async with Producer(settings) as producer:
            async with producer.transaction():
                await producer.send(SCHEMAS_TOPIC, None, key=b'{"keytype":"NOOP","magic":0}')
                await producer.flush()
                writing = asyncio.ensure_future(Forwarder()(url, request))
                # Connections are served in order: after this response the write has begun.
                assert (await Forwarder()(url, read)).body == b"[]"
                stopping.set()
                await asyncio.sleep(0)
            response = await writing
        assert (response.status, json.loads(response.body)) == (200, {"id": 1})
        await serving

    run(tmp_path, story)
