"""Requests to a REST proxy by http.client, and the content types of its versions."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

V2 = "application/vnd.kafka.v2+json"
JSON = "application/json"
SECONDS_MAX = 240


def v2(form: str) -> str:
    return f"application/vnd.kafka.{form}.v2+json"


class RestCalls:
    """Calls a proxy; each call has a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def open(
        self, method: str, path: str, body: object = None, sent: str = V2, accept: str | None = None
    ) -> Iterator[HTTPResponse]:
        address = urlsplit(self.url)
        assert address.hostname
        connection = HTTPConnection(address.hostname, address.port, timeout=SECONDS_MAX)
        headers = {} if accept is None else {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = sent
        encoded = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, encoded, headers)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def ask(
        self, method: str, path: str, body: object = None, sent: str = V2, accept: str | None = None
    ) -> tuple[int, Any]:
        """Return the status and the value of a response."""
        with self.open(method, path, body, sent, accept) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None

    def get(self, path: str, accept: str | None = None) -> Any:
        """Return the value of a successful GET."""
        status, content = self.ask("GET", path, accept=accept)
        assert status == 200, content
        return content

    def post(self, path: str, body: object = None, sent: str = V2) -> Any:
        """Return the value of a successful POST."""
        status, content = self.ask("POST", path, body, sent)
        assert status in {200, 201, 204, 207}, content
        return content

    def code(self, method: str, path: str, body: object = None, sent: str = V2) -> tuple[int, int]:
        """Return the status and the code of a refusal."""
        status, content = self.ask(method, path, body, sent)
        return status, content["error_code"]

    def lines(self, path: str, body: object = None) -> list[Any]:
        """Return the values of a response of JSON lines."""
        method = "GET" if body is None else "POST"
        with self.open(method, path, body, JSON) as response:
            assert response.status == 200, response.read()
            return [json.loads(line) for line in response.read().splitlines() if line]

    @property
    def cluster(self) -> str:
        """The path of the cluster in version 3."""
        return f"/v3/clusters/{self.get('/v3/clusters')['data'][0]['cluster_id']}"
