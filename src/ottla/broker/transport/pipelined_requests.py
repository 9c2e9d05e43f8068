"""The in-flight requests of one connection, in the order of their arrival."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.transport.response_writer import Piece, memory_bytes


@dataclass(slots=True, eq=False)
class Request:
    """A request in flight."""

    answer: Sequence[Piece] | None = None
    is_refused: bool = False
    waiting: asyncio.Task[None] | None = None
    """Kept here, because an event loop alone does not keep it alive."""

    def forget_task(self, _: asyncio.Task[None]) -> None:
        """Free the request and its data with its cancelled task.

        The traceback of a cancelled task has the frames, and so this request: without this, a large
        decoded request is in a cycle until the next full garbage collection.
        """
        self.waiting = None


class PipelinedRequests:
    """Holds completed responses back until all earlier ones are sent.

    A refused request gets no response, nor does any later request.
    """

    __slots__ = ("is_broken", "requests", "running", "waiting_bytes")

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()
        self.running = 0
        self.waiting_bytes = 0
        """The bytes of responses that wait for earlier ones."""
        self.is_broken = False
        """Whether a refused request is next: there is nothing more to send."""

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def memory_bytes(self) -> int:
        """The memory of completed responses that wait for their turn."""
        return sum(memory_bytes(request.answer or ()) for request in self.requests)

    def add(self) -> Request:
        """Take a request that comes after all others."""
        request = Request()
        self.requests.append(request)
        self.running += 1
        return request

    def answer(self, request: Request, pieces: Sequence[Piece]) -> None:
        """Keep the response to a request; it may be empty."""
        self.waiting_bytes += sum(map(len, pieces))
        request.answer = pieces

    def refuse(self, request: Request) -> None:
        """End the responses before this request."""
        request.is_refused = True

    def take_answers(self) -> list[Sequence[Piece]]:
        """Return the responses that are next in order."""
        taken = []
        requests = self.requests
        while requests and (answer := requests[0].answer) is not None:
            taken.append(answer)
            self.waiting_bytes -= sum(map(len, answer))
            requests.popleft()
        if requests and requests[0].is_refused:
            self.is_broken = True
        return taken

    def cancel(self) -> None:
        """Cancel all that run."""
        for request in self.requests:
            if request.waiting is not None:
                request.waiting.add_done_callback(request.forget_task)
                request.waiting.cancel()
