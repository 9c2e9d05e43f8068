"""Log lines in both formats, and a reader that stops reading."""

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from io import StringIO

import pytest

from ottla.runtime.logs import LINES_HELD_MAX, LogFormat, LogWriter, configure_logging

PIPE_BYTES = 1 << 16
Configure = Callable[..., LogWriter]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """Configure logging for one test, and restore it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    writers: list[LogWriter] = []

    def begin(*args: object, **named: object) -> LogWriter:
        root.handlers = []  # the test must not close pytest's handlers
        writers.append(configure_logging(*args, **named))
        return writers[-1]

    yield begin
    for writer in writers:
        writer.close()
    root.handlers = handlers
    root.setLevel(level)


def test_text_looks_as_kafka_writes_it(configure: Configure) -> None:
    stream = StringIO()
    writer = configure(LogFormat.TEXT, stream=stream)
    logging.getLogger("ottla.broker").info("topic %s is deleted", "orders")
    writer.close()
    assert re.fullmatch(
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] INFO topic orders is deleted"
        r" \(ottla\.broker\)\n",
        stream.getvalue(),
    )


def test_json_has_what_the_line_is_about(configure: Configure) -> None:
    stream = StringIO()
    writer = configure(LogFormat.JSON, broker_id=7, stream=stream)
    logging.getLogger("ottla.broker").warning("a\nb", extra={"topic": "orders", "partition": 3})
    writer.close()
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("ts"))
    assert line == {
        "level": "WARNING",
        "logger": "ottla.broker",
        "msg": "a\nb",
        "broker_id": 7,
        "topic": "orders",
        "partition": 3,
    }


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_failure_is_told_with_its_traceback(configure: Configure, log_format: LogFormat) -> None:
    stream = StringIO()
    writer = configure(log_format, stream=stream)
    try:
        int("no such luck")
    except ValueError:
        logging.getLogger("ottla").exception("it failed")
    writer.close()
    assert "it failed" in stream.getvalue()
    assert "ValueError: invalid literal" in stream.getvalue()
    assert stream.getvalue().count("Traceback") == 1


def test_what_a_peer_sent_cannot_look_like_another_line(configure: Configure) -> None:
    stream = StringIO()
    writer = configure(LogFormat.TEXT, stream=stream)
    logging.getLogger("ottla").info("client %s", "x\n[2026-01-01 00:00:00,000] ERROR\x1b[31m")
    writer.close()
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_levels_below_the_one_asked_for_are_not_told(configure: Configure) -> None:
    stream = StringIO()
    writer = configure(LogFormat.TEXT, "WARNING", stream=stream)
    logging.getLogger("ottla").info("chatter")
    writer.close()
    assert stream.getvalue() == ""


def test_logging_does_not_wait_for_a_slow_reader(configure: Configure) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as reader:
        writer = configure(LogFormat.TEXT, stream=stream)
        line = "x" * 100
        count = LINES_HELD_MAX + 2 * PIPE_BYTES // len(line)
        for _ in range(count):  # would never end if logging blocked
            logging.getLogger("ottla").info(line)
        lost = writer.lost_count
        assert lost > 0
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.extend(reader))
        thread.start()
        writer.close()
        stream.close()
        thread.join()
    assert sum(line in text for text in found) == count - lost
    told = [
        int(match[1]) for text in found if (match := re.search(r" (\d+) lines were lost", text))
    ]
    assert sum(told) == lost
