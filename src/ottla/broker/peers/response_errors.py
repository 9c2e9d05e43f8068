"""Error codes in the responses of other brokers."""

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


def check_answer(code: int) -> None:
    """Raise ApiError for another broker's error code, unless it is NONE."""
    if code:
        try:
            known = ErrorCode(code)
        except ValueError:
            known = ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(known, f"another broker answers with error {code}")
