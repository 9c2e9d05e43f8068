"""The only error that reading raises for bytes that break the protocol."""

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


class ProtocolError(ApiError):
    """Bytes that break the protocol. The detail names the fault and its position."""

    def __init__(self, detail: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(code, detail)


class MalformedRecordError(ProtocolError):
    """One record of a batch breaks the format."""

    def __init__(self, index: int, detail: str) -> None:
        super().__init__(detail, ErrorCode.INVALID_RECORD)
        self.index = index
        """Its index in the batch; the record count for bytes after the last record."""


class TooLargeError(ProtocolError):
    """Bytes decompress to more than a limit."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, ErrorCode.CORRUPT_MESSAGE)


class MessageTooLargeError(ProtocolError):
    """A message, whether sound or not, that has more of something than a limit allows."""
