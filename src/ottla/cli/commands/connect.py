"""`ottla connect`: runs connectors, declared in a file."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError, one_sentence, say
from ottla.pipelines.connect.declaring.declaration import Declaration, read_declarations
from ottla.pipelines.connect.declaring.errors import ConnectorError, DeclarationError
from ottla.pipelines.connect.running import check, run
from ottla.pipelines.sessions import end_session, spark_session
from ottla.pipelines.spark.java import JavaNotFoundError
from ottla.pipelines.spark.jvm import SparkStartError
from ottla.pipelines.spark.spark_version import STREAMS, SparkVersionError, check_spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

connect = typer.Typer(no_args_is_help=True)
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The connectors to run: .toml, .yaml or .json.")
]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(connect, name=name, help=summary)


@connect.command("run")
def run_file(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="Copy the data that exists now, sources first, and end.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark's master; by default this machine.")
    ] = None,
) -> None:
    """Run the connectors of a file until Ctrl-C or SIGTERM; both end them in order."""
    declarations = _declared(file)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with one_sentence(ConnectorError):
        check(declarations)
        with _session(declarations[0].name, master) as spark:
            run(spark, declarations, is_once=once, stop=stop, say=say)


@connect.command("check")
def check_file(
    file: File,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check the file only, without connecting to anything.")
    ] = False,
) -> None:
    """Check whether the connectors of a file could run, or list the problems."""
    declarations = _declared(file)
    with one_sentence(ConnectorError):
        if not offline:
            check(declarations)
    for one in declarations:
        sys.stdout.write(f"{one.name}: ok\n")


@contextmanager
def _session(name: str, master: str | None) -> Iterator["SparkSession"]:
    try:
        check_spark_version(STREAMS, "a connector")
        spark = spark_session(name, master=master)
    except (JavaNotFoundError, SparkStartError, SparkVersionError) as error:
        raise CommandError(str(error)) from None
    try:
        yield spark
    finally:
        end_session(spark)


def _declared(file: Path) -> tuple[Declaration, ...]:
    # A user's own class may be in the working directory, as with `python -m`.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return read_declarations(file)
    except DeclarationError as error:
        raise WrongCallError(str(error)) from None
