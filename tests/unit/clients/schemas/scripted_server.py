"""An HTTP server that gives prepared responses, and remembers the requests."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    peer: tuple[str, int]


Answer = Callable[[Seen], tuple[int, Any] | None]
"""Returns a status and a JSON value, or None to close the connection without a response."""


class ScriptedServer:
    """A server on a free port of the loopback interface. Use it in `with`."""

    def __init__(self, answer: Answer) -> None:
        self.seen: list[Seen] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _answer(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.loads(raw) if raw else None
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Seen(self.command, self.path, headers, body, self.client_address)
                seen.append(request)
                answered = answer(request)
                if answered is None:
                    self.close_connection = True
                    return
                status, value = answered
                sent = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - http.server's names

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def paths(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.seen]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
