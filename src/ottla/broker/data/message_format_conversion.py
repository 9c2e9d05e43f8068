"""Converts for clients that are older than record batches, on a thread, one after the other.

Conversion visits every record, so it may take long. Threads share the interpreter fairly with the
event loop, and only one conversion runs at a time: old clients wait for each other, and delay no
other client. That also keeps the produce requests of one connection in order.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.storage.files.log_slice import LogSlice
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import MAGIC, MAGIC_AT
from ottla.wire.records.down_conversion import message_sets
from ottla.wire.records.message_set import to_batches

CONVERTED_BYTES_MAX: Final = 4 << 20
"""How much one old fetch gets, and one batch more: it is held in memory until it is sent."""
PRODUCED_BYTES_MAX: Final = 2 << 20
"""The maximum size of a message set: twice a batch's, unless a topic allows more."""


class MessageFormatConversion:
    """The way from message sets to batches, and back."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._turn = asyncio.Lock()

    async def batches(self, sets: Sequence[memoryview]) -> list[memoryview | ApiError]:
        """Convert the message sets of one request; a fault becomes the error of its set.

        The caller continues before the next conversion begins.
        """
        async with self._turn:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _all_batches, sets)

    async def message_set(
        self, records: LogSlice, *, magic: int, first_offset: Offset, bytes_max: int
    ) -> bytes:
        """Convert batches until there are bytes_max; ApiError if not even the first can be."""
        if not len(records) or bytes_max <= 0:
            return b""
        async with self._turn:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._threads, _message_set, records, magic, first_offset, bytes_max
            )


def _all_batches(sets: Sequence[memoryview]) -> list[memoryview | ApiError]:
    converted: list[memoryview | ApiError] = []
    for messages in sets:
        try:
            converted.append(_batches(messages))
        except ApiError as error:
            converted.append(error)
    return converted


def _batches(messages: memoryview) -> memoryview:
    if len(messages) > MAGIC_AT and messages[MAGIC_AT] >= MAGIC:
        return messages  # a client may know more than the version of its request
    if len(messages) > PRODUCED_BYTES_MAX:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a message set of {len(messages)} bytes exceeds the limit of {PRODUCED_BYTES_MAX}",
        )
    return memoryview(bytearray().join(to_batches(messages, base_offset=0)))


def _message_set(records: LogSlice, magic: int, first_offset: Offset, bytes_max: int) -> bytes:
    converted: list[bytes] = []
    size_bytes = 0
    try:
        for messages in message_sets(records.read(), magic=magic, first_offset=first_offset):
            if messages:
                converted.append(messages)
            size_bytes += len(messages)
            if size_bytes >= bytes_max:
                break
    except ProtocolError:
        if not converted:
            raise
    except OSError as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    return b"".join(converted)
