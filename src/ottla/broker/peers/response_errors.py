"""Error codes in the answers of other brokers."""

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


def check_answer(code: int) -> None:
    """Raise the ApiError that another broker has answered with, if it is one."""
    if code:
        try:
            known = ErrorCode(code)
        except ValueError:
            known = ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(known, f"another broker answers with error {code}")
