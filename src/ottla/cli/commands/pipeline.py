"""`ottla pipeline`: runs pipelines on Spark, from Python files."""

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError, one_sentence, say
from ottla.cli.support.options import DEFAULT_BROKERS, Brokers, Format, Settings, key_values
from ottla.cli.support.output import OutputFormat, Row, show
from ottla.cli.support.pipeline_status import FLOW_COLUMNS, flow_rows, is_on_a_terminal, shown_live
from ottla.pipelines.running.folders import (
    STATE_DIR,
    PipelineDirectory,
    all_pipelines,
    pipeline_folder,
    state_folder,
)
from ottla.pipelines.running.progress import read_progress
from ottla.pipelines.running.registry import Outcome, PipelineError, present_record, stop
from ottla.pipelines.spark.spark_version import check_spark_extra
from ottla.pipelines.streams.pace import Latency, Pace, RunPlan

LIST_COLUMNS: Final = ("PIPELINE", "STATE", "PID", "SINCE", "FILE", "FAILURE")
REFRESH_SECONDS: Final = 0.5
STOP_SECONDS: Final = 60.0
pipelines = typer.Typer(no_args_is_help=True)
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar=STATE_DIR,
        help="The directory of the pipelines' state. Default: ~/.local/state/ottla",
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting. Repeatable."),
]
LatencyOption = Annotated[
    Latency | None,
    typer.Option(
        help="The latency that Spark is set up for. Default: low; with --batch, --every or"
        " --until-caught-up: throughput."
    ),
]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(pipelines, name=name, help=summary)


@pipelines.command("run")
def run_file(
    file: Annotated[Path, typer.Argument(help="A Python file that uses ottla.streams.")],
    name: Annotated[str | None, typer.Option(help="Default: the file's name.")] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark's master. Default: all cores of this machine.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Time between micro-batches, as '10 seconds'.")
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End after the existing records.")
    ] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Drop the progress, and read from the start.")
    ] = False,
    is_batch: Annotated[
        bool, typer.Option("--batch", help="Process the existing records once, as a batch.")
    ] = False,
    latency: LatencyOption = None,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="Start sooner, as with --latency low.")
    ] = False,
    conf: SparkSettings = None,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="Where checkpoints are, if not in the state directory.")
    ] = None,
    state_dir: StateDir = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Run a pipeline until it is stopped or fails; it continues at its last position.

    Ctrl-C and `ottla pipeline stop` stop it. -X goes to the clients that read and write.
    """
    if not file.is_file():
        raise WrongCallError(f"there is no file {file}")
    if is_batch and (every or until_caught_up or from_beginning or checkpoint_dir):
        raise WrongCallError("--batch keeps no state: it goes with none of the other ways to run")
    with one_sentence(ImportError):
        check_spark_extra()
    from ottla.cli.support.pipeline_run import Told, run_told  # noqa: PLC0415 - it loads Spark

    pace = Pace(every, until_caught_up)
    plan = RunPlan(state_dir, checkpoint_dir, pace, from_beginning, str(file))
    default = Latency.THROUGHPUT if is_batch else pace.latency
    is_quick = is_quick or (latency or default) is Latency.LOW
    spark, clients = key_values(conf, "--conf"), key_values(settings, "-X")
    told = Told(name or file.stem, brokers, master, is_batch, is_quick, spark, clients)
    run_told(file, told, plan)


@pipelines.command("list")
@pipelines.command("ls", hidden=True)
def list_pipelines(state_dir: StateDir = None, form: Format = OutputFormat.TABLE) -> None:
    """List the running pipelines, and the outcomes of the others (also: ls)."""
    rows = [_row(folder) for folder in all_pipelines(state_folder(state_dir))]
    show(rows, LIST_COLUMNS, form)


@pipelines.command("status")
def status(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Default: all running pipelines.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the table once, and exit.")] = False,
    state_dir: StateDir = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the flows of pipelines: rates, lag, watermark, state. On a terminal, until Ctrl-C.

    LAG is how many records were there and not read after the last micro-batch, ROWS how many it has
    read since it was started, ROWS-PER-S how fast it was in the last micro-batch.
    """
    state = state_folder(state_dir)
    _check_there(state, names)
    if form is OutputFormat.JSON or once or not is_on_a_terminal():
        show(_status_rows(state, names), FLOW_COLUMNS, form)
        return
    with shown_live() as update:
        while True:
            update(_status_rows(state, names))
            time.sleep(REFRESH_SECONDS)


@pipelines.command("stop")
def stop_pipeline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline.")],
    timeout: Annotated[
        float, typer.Option(help="Seconds until it has to have stopped.")
    ] = STOP_SECONDS,
    state_dir: StateDir = None,
) -> None:
    """Stop a pipeline, and wait until it has stopped."""
    try:
        stop(pipeline_folder(state_folder(state_dir), name), timeout)
    except PipelineError as error:
        raise CommandError(str(error)) from None
    say(f"pipeline {name} has stopped")


def _row(folder: PipelineDirectory) -> Row:
    record = present_record(folder)
    assert record is not None, "it was found by its record"
    is_running = record.outcome is Outcome.RUNNING
    values = (
        folder.name,
        record.outcome.value,
        record.process.pid if is_running else None,
        record.since,
        record.file,
        record.failure,
    )
    return dict(zip(LIST_COLUMNS, values, strict=True))


def _check_there(state: Path, names: list[str] | None) -> None:
    known = {folder.name for folder in all_pipelines(state)}
    for name in names or ():
        if name not in known:
            raise CommandError(
                f"there is no pipeline {name}: `ottla pipeline list` shows them, of the state"
                f" directory {state}"
            )


def _status_rows(state: Path, names: list[str] | None) -> list[Row]:
    rows: list[Row] = []
    for folder in all_pipelines(state):
        record = present_record(folder)
        assert record is not None, "it was found by its record"
        if folder.name in names if names else record.outcome is Outcome.RUNNING:
            rows += flow_rows(folder.name, record.outcome, read_progress(folder.progress))
    return rows
