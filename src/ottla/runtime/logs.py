"""Log lines, in Kafka's layout or as JSON: written by a thread, because a pipe may be full.

[2026-11-15 07:00:00,123] INFO topic orders is deleted (ottla.broker.startup.observability)
{"ts":"2026-11-15T07:00:00.123Z","level":"INFO","logger":…,"msg":…,"broker_id":1,"topic":…}

If standard error is not read, lines are held back up to a limit and then lost. Their number is
logged once it is read again.
"""

import copy
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from enum import StrEnum
from logging.handlers import QueueHandler
from queue import Full, Queue
from typing import Final, TextIO

LINES_HELD_MAX: Final = 10_000
FLUSH_SECONDS_MAX: Final = 2.0
"""How long the exit of a process may wait for lines to be written."""
EXTRA_KEYS: Final = (
    "topic",
    "partition",
    "group",
    "log_dir",
    "listener",
    "client_id",
    "correlation_id",
)
"""The allowed names of `extra`; they are the keys in JSON."""
_CONTROL: Final = {number: f"\\x{number:02x}" for number in (*range(32), 127)} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\t",
}


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class TextFormatter(logging.Formatter):
    """Kafka's layout. Line breaks in data from peers are escaped: they cannot forge a line."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(levelname)s %(message)s (%(name)s)")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without the traceback, which has lines of its own."""
        record.message = record.message.translate(_CONTROL)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object on a line."""

    def __init__(self, broker_id: int | None = None) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        """Write a line; the keys come in the same order each time."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "ts": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if self._broker_id is not None:
            line["broker_id"] = self._broker_id
        line.update((key, getattr(record, key)) for key in EXTRA_KEYS if hasattr(record, key))
        trace = record.exc_text or (record.exc_info and self.formatException(record.exc_info))
        if trace:
            line["error"] = trace
        return json.dumps(line, ensure_ascii=False, default=str, separators=(",", ":"))


class LogWriter(QueueHandler):
    """Takes lines from any thread, and writes them in a thread of its own."""

    def __init__(self, formatter: logging.Formatter, stream: TextIO) -> None:
        self._lines: Queue[logging.LogRecord | None] = Queue(LINES_HELD_MAX)
        super().__init__(self._lines)
        self._target = logging.StreamHandler(stream)
        self._target.setFormatter(formatter)
        self._thread = threading.Thread(target=self._write, name="ottla-log", daemon=True)
        self.lost_count = 0
        """The number of lost lines since the start."""
        self._thread.start()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Convert mutable values to text, as they may change before the line is written."""
        prepared = copy.copy(record)
        prepared.msg = record.getMessage()
        prepared.args = None
        if record.exc_info:
            prepared.exc_text = logging.Formatter().formatException(record.exc_info)
            prepared.exc_info = None
        return prepared

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop it if the queue is full: the caller never waits."""
        try:
            self._lines.put_nowait(record)
        except Full:
            self.lost_count += 1

    def close(self) -> None:
        """Write the queued lines, as far as time allows, and end the thread."""
        if self._thread.is_alive():
            try:
                self._lines.put(None, timeout=FLUSH_SECONDS_MAX)
            except Full:
                return
            self._thread.join(FLUSH_SECONDS_MAX)
        super().close()

    def _write(self) -> None:
        told = 0
        while (record := self._lines.get()) is not None:
            self._target.handle(record)
            lost = self.lost_count
            if lost > told:
                self._tell_lost(lost - told)
                told = lost

    def _tell_lost(self, count: int) -> None:
        text = f"{count} lines were lost: the reader of standard error was too slow"
        self._target.handle(
            logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)
        )


def configure_logging(
    log_format: LogFormat = LogFormat.TEXT,
    level: str = "INFO",
    *,
    broker_id: int | None = None,
    stream: TextIO | None = None,
) -> LogWriter:
    """Send all log lines of this process to standard error or a stream; replaces handlers.

    `close` the result before the process ends. Levels of single loggers can be changed later, as
    the admin listener does.
    """
    formatter = JsonFormatter(broker_id) if log_format is LogFormat.JSON else TextFormatter()
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    writer = LogWriter(formatter, sys.stderr if stream is None else stream)
    root.addHandler(writer)
    root.setLevel(level)
    return writer
