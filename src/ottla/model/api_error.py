"""The exception that becomes an error code in a response."""

from ottla.model.error_code import ErrorCode
from ottla.model.picklable_error import PortableError


class ApiError(PortableError):
    """A request, or one partition of it, failed in a way the protocol can name."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(f"{code.name}: {detail}" if detail else code.name)
        self.code = code
        self.detail = detail
