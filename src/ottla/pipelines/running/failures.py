"""The reason of a failed query as one sentence: Spark's own report fills a page."""

import re
import traceback
from typing import Final

_SENTENCE_MAX: Final = 2_000
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?) SQLSTATE: P0001", re.DOTALL)
_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*): (.*)")
_SPARKS_WORDS: Final = re.compile(r"^(?:Query )?\[id = .*?\] terminated with exception: ")
_CLASS: Final = re.compile(r"^\[[A-Z_.0-9]+\] ")
_SPARKS_PAGE: Final = "=== Streaming Query ==="
_PLACE: Final = re.compile(r"\s*; line \d+ pos \d+;?\s*$")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}\s*")


def sentence_of(error: BaseException) -> str:
    """Return the reason, without stack traces."""
    text = str(error)
    raised = _RAISED.search(text)
    if raised is not None:
        return raised[1].strip()
    said = _python_sentence(text) or _first_line(text)
    return (said or type(error).__name__)[:_SENTENCE_MAX]


def where_in(file: str, error: BaseException) -> str:
    """Return the last line of a file in an error's traceback, as text."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
    ]
    return f"{file} line {frames[-1].lineno}" if frames else file


def _python_sentence(text: str) -> str:
    """Return the message of a Python exception from the traceback in Spark's report."""
    _, found, after = text.rpartition(_TRACEBACK)
    if not found:
        return ""
    lines = after.splitlines()
    for number, line in enumerate(lines):
        said = _PYTHON_ERROR.match(line)
        if said is not None:
            rest = [more for more in lines[number + 1 :] if not _is_stack(more)]
            return _STATE.sub(" ", " ".join([said[2], *_until_over(rest)])).strip()
    return ""


def _until_over(lines: list[str]) -> list[str]:
    """Return the lines of a message, without Spark's details of the query behind it."""
    kept = []
    for line in lines:
        if not line.strip() or line.startswith(_SPARKS_PAGE):
            break
        kept.append(line.strip())
    return kept


def _is_stack(line: str) -> bool:
    return line.lstrip().startswith(("at ", "File ", "...", "Caused by"))


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _is_stack(line)]
    if not lines:
        return ""
    said = _CLASS.sub("", lines[0])
    said = _CLASS.sub("", _SPARKS_WORDS.sub("", said))
    return _PLACE.sub("", _STATE.sub(" ", said)).strip()
