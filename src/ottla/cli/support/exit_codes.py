"""Exits of commands: a sentence on stderr, and an exit code. Never a traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

FAILURE: Final = 1
WRONG_CALL: Final = 2
INTERRUPTED: Final = 130
TERMINATED: Final = 143

_HINT_BY_CODE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`ottla topic list` shows the topics that are there",
    ErrorCode.GROUP_ID_NOT_FOUND: "`ottla group list` shows the groups that are there",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`ottla transaction list` shows the existing ids",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`--from start` reads from the first existing record",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic's max.message.bytes is smaller than the record",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old, or too new, for this",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is being rearranged; try again",
}


class CommandError(Exception):
    """Ends a command with a sentence and an exit code."""

    code = FAILURE


class WrongCallError(CommandError):
    """Ends a command that was called with invalid arguments."""

    code = WRONG_CALL


def say(sentence: str) -> None:
    """Print a message to stderr."""
    sys.stderr.write(f"ottla: {sentence}\n")


def sentence_of(error: Exception) -> str:
    """Return a sentence for a failure and, if known, its remedy."""
    if not isinstance(error, ApiError):
        return " ".join(str(error).split()) or type(error).__name__
    hint = _HINT_BY_CODE.get(error.code)
    if hint and error.detail:
        return f"{error.detail}: {hint}"
    return f"{error.detail or hint or 'the broker refused'} ({error.code.name})"


@contextmanager
def one_sentence(*expected: type[Exception]) -> Iterator[None]:
    """Turn expected exceptions into a CommandError, and Ctrl-C into its exit code."""
    caught: tuple[type[Exception], ...] = (ApiError, OSError, *expected)
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does; the rest must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(FAILURE) from None
    except caught as error:
        raise CommandError(sentence_of(error)) from None
