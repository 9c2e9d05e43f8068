"""`ottla mirror`: copies topics, settings and group offsets of one cluster to another."""

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.support.exit_codes import CommandError, one_sentence, say
from ottla.cli.support.options import Format, key_values
from ottla.cli.support.output import OutputFormat, show
from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.pipelines.mirror.lag import PartitionLag, status
from ottla.pipelines.mirror.options import DEFAULT_RANGE_BYTES, MirrorError, MirrorOptions
from ottla.pipelines.mirror.running import Mirror, Progress
from ottla.pipelines.spark.java import JavaNotFoundError
from ottla.pipelines.spark.jvm import SparkStartError
from ottla.pipelines.spark.spark_version import STREAMS, check_spark_extra, check_spark_version
from ottla.runtime.clock import SystemClock

DETAILS: Final = """\b
  ottla mirror --from a:9092 --to b:9092 --topics orders,payments
  ottla mirror --from a:9092 --to b:9092 --topics 'orders.*' --prefix eu. --once
  ottla mirror --from a:9092 --to b:9092 --topics orders --status

Records arrive once each, in order, with their keys, headers and times; committed offsets of groups
are translated, so that consumers can continue on the target. After a kill, start it again."""
COLUMNS: Final = ("TOPIC", "PARTITION", "COPY", "END-OFFSET", "COPIED-TO", "LAG", "RECORDS")
_LINES_SECONDS: Final = 10.0
"""The interval of progress lines where no terminal can show a live line."""


Topics = Annotated[
    str, typer.Option("--topics", "-t", help="Names, or regular expressions, with commas.")
]
Groups = Annotated[
    str, typer.Option(help="Which groups are followed, as a regular expression; '' for none.")
]
Interval = Annotated[
    float, typer.Option(min=0.1, help="Seconds between looks at topics, settings and groups.")
]
ReplicationFactor = Annotated[
    int, typer.Option(min=0, help="Replication factor of created topics; 0: as on the source.")
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Where Spark keeps its plans; losing them does no harm.")
]
SourceSettings = Annotated[
    list[str] | None,
    typer.Option("--from-setting", metavar="KEY=VALUE", help="A client setting for --from."),
]
TargetSettings = Annotated[
    list[str] | None,
    typer.Option("--to-setting", metavar="KEY=VALUE", help="A client setting for --to."),
]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(mirror)


def mirror(
    source: Annotated[str, typer.Option("--from", metavar="HOST:PORT,…", help="Copy from here.")],
    target: Annotated[str, typer.Option("--to", metavar="HOST:PORT,…", help="Copy to here.")],
    topics: Topics,
    groups: Groups = ".*",
    prefix: Annotated[str, typer.Option(help="The prefix of the names of copies.")] = "",
    is_once: Annotated[
        bool, typer.Option("--once", help="Copy the existing records, and end.")
    ] = False,
    is_status: Annotated[
        bool, typer.Option("--status", help="Show how far the copies are; copy nothing.")
    ] = False,
    interval: Interval = 5.0,
    replication_factor: ReplicationFactor = 0,
    master: Annotated[str | None, typer.Option(help="Where Spark runs, if not here.")] = None,
    checkpoint: Checkpoint = None,
    source_settings: SourceSettings = None,
    target_settings: TargetSettings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Parse the options, and run the mirror."""
    options = MirrorOptions(
        {"bootstrap.servers": source, **key_values(source_settings, "--from-setting")},
        {"bootstrap.servers": target, **key_values(target_settings, "--to-setting")},
        tuple(word.strip() for word in topics.split(",") if word.strip()),
        groups,
        prefix,
        replication_factor,
        DEFAULT_RANGE_BYTES,
    )
    with one_sentence(MirrorError, InvalidClientSettingError):
        options.checked()
        if is_status:
            _show(asyncio.run(status(options)), form)
            return
        progress = _run(options, checkpoint, master, interval if not is_once else None)
        if progress is not None:
            _show(progress.partitions, form)


def _run(
    options: MirrorOptions, checkpoint: Path | None, master: str | None, interval: float | None
) -> Progress | None:
    """Mirror with our own Spark session: once if there is no interval, else until Ctrl-C."""
    try:
        from ottla.pipelines.sessions import end_session, spark_session  # noqa: PLC0415

        check_spark_extra()
        check_spark_version(STREAMS, "a mirror")
        spark = spark_session("ottla mirror", master=master)
    except (ImportError, JavaNotFoundError, SparkStartError) as error:
        raise CommandError(str(error)) from None
    try:
        options = options.with_tasks(spark.sparkContext.defaultParallelism)
        running = Mirror(spark, options, checkpoint or _default_checkpoint(options))
        if interval is None:
            return running.run_once()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: running.stop())
        running.run(interval_seconds=interval, on_progress=_LiveLine())
        return None
    finally:
        end_session(spark)


def _default_checkpoint(options: MirrorOptions) -> Path:
    """Return a directory that is the same in each run of the same mirror."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    told = "\n".join((str(options.source), str(options.target), options.prefix, *options.topics))
    return Path(home) / "ottla" / f"mirror-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _show(rows: list[PartitionLag], form: OutputFormat) -> None:
    cells = [
        {
            "TOPIC": row.source.topic,
            "PARTITION": row.source.partition,
            "COPY": row.target.topic,
            "END-OFFSET": row.end_offset,
            "COPIED-TO": row.offset,
            "LAG": row.lag,
            "RECORDS": row.records,
        }
        for row in rows
    ]
    show(cells, COLUMNS, form)


class _LiveLine:
    """A live progress line on stderr."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._last: tuple[float, int] | None = None
        self._said_at = -_LINES_SECONDS

    def __call__(self, progress: Progress) -> None:
        now = self._clock.monotonic_ms() / 1000
        before, self._last = self._last, (now, progress.bytes)
        rate = 0.0 if before is None else (progress.bytes - before[1]) / max(now - before[0], 0.001)
        line = (
            f"lag {progress.lag:,} in {len(progress.partitions)} partitions, "
            f"{progress.records:,} records copied, {rate / 1e6:,.1f} MB/s, "
            f"{progress.group_offsets:,} group offsets moved"
        )
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif now - self._said_at >= _LINES_SECONDS:
            self._said_at = now
            say(line)
