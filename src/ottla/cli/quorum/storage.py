"""`ottla storage`: formats the directories of a node with `process.roles`, and shows them."""

import posixpath
import socket
import sys
from typing import Annotated

import typer

from ottla.broker.metadata_store.meta_properties import ForeignLogDirError
from ottla.broker.quorum.formatting import AlreadyFormattedError
from ottla.cli.quorum.node_formatting import (
    FormatCall,
    World,
    directories_of,
    format_node,
    requested_levels,
)
from ottla.cli.quorum.node_options import Config, NodeSettings, node_config
from ottla.cli.support.exit_codes import FAILURE, one_sentence, say
from ottla.cli.support.options import Format
from ottla.cli.support.output import OutputFormat, Row, show
from ottla.environment.disk import Disk
from ottla.model.identifiers import uuid_to_text
from ottla.model.settings.broker_config import BrokerConfig
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness
from ottla.storage.files.checkpoints import (
    META_PROPERTIES_FILE,
    CorruptCheckpointError,
    MetaProperties,
    read_meta_properties,
)

FORMATTED_COLUMNS = ("LOG-DIR", "DIRECTORY-ID", "METADATA", "STATE")
COLUMNS = ("LOG-DIR", "CLUSTER-ID", "NODE-ID", "DIRECTORY-ID", "METADATA", "STATE")
FORMATTED, NOT_FORMATTED = "formatted", "not formatted"
storages = typer.Typer(no_args_is_help=True)

ClusterId = Annotated[
    str, typer.Option("--cluster-id", "-t", metavar="ID", help="The id of the cluster.")
]
Standalone = Annotated[
    bool, typer.Option("--standalone", "-s", help="Begin a quorum with this controller alone.")
]
InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY,…",
        help="Begin a quorum with these controllers; the same words for each of them.",
    ),
]
NoInitialControllers = Annotated[
    bool, typer.Option("--no-initial-controllers", "-N", help="Join a quorum that exists.")
]
IgnoreFormatted = Annotated[
    bool, typer.Option("--ignore-formatted", "-g", help="Leave formatted directories as they are.")
]
ReleaseVersion = Annotated[
    str | None,
    typer.Option(
        "--release-version",
        "-r",
        metavar="VERSION",
        help="The levels of a release of Kafka, such as 4.2, that all nodes know.",
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--feature", "-f", metavar="NAME=LEVEL", help="The first level of a feature. Repeatable."
    ),
]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(storages, name=name, help=summary)


@storages.command("format")
def format_directories(
    cluster_id: ClusterId,
    config: Config = None,
    standalone: Standalone = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: NoInitialControllers = False,
    ignore_formatted: IgnoreFormatted = False,
    features: Features = None,
    release_version: ReleaseVersion = None,
    settings: NodeSettings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Prepare the directories of a node with process.roles, once, before its first start.

    Settings come from the same places as for `ottla start`. A broker without the role controller
    needs none of the three options about controllers.
    """
    call = FormatCall(
        cluster_id,
        standalone,
        initial_controllers,
        no_initial_controllers,
        ignore_formatted,
        requested_levels(features or (), release_version),
    )
    with one_sentence(
        AlreadyFormattedError, CorruptCheckpointError, ForeignLogDirError, UnicodeDecodeError
    ):
        world = World(
            KernelDisk(), SystemRandomness(), SystemClock().now_ms(), socket.gethostname()
        )
        formatted = format_node(world, node_config(config, settings), call)
    rows: list[Row] = [
        {
            "LOG-DIR": row.path,
            "DIRECTORY-ID": uuid_to_text(row.directory_id),
            "METADATA": row.has_metadata,
            "STATE": FORMATTED if row.is_new else "was formatted",
        }
        for row in formatted
    ]
    show(rows, FORMATTED_COLUMNS, form)


@storages.command("info")
def show_directories(
    config: Config = None,
    settings: NodeSettings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show which cluster and node the directories belong to; exit code 1 for a problem."""
    with one_sentence(UnicodeDecodeError):
        parsed = node_config(config, settings)
        disk = KernelDisk()
        rows: list[Row] = []
        problems: list[str] = []
        for path in directories_of(parsed):
            mark, state = _state_of(disk, path)
            if state != FORMATTED:
                problems.append(f"{path}: {state}")
            rows.append(_row(path, mark, state, has_metadata=path == parsed.metadata_folder))
        show(rows, COLUMNS, form)
    problems += _contradictions(parsed, rows)
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(FAILURE)


@storages.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster or a directory."""
    sys.stdout.write(f"{uuid_to_text(SystemRandomness().uuid())}\n")


def _state_of(disk: Disk, path: str) -> tuple[MetaProperties | None, str]:
    if not disk.exists(path):
        return None, "does not exist"
    if not disk.is_directory(path):
        return None, "is not a directory"
    try:
        mark = read_meta_properties(disk, posixpath.join(path, META_PROPERTIES_FILE))
    except (CorruptCheckpointError, OSError) as error:
        return None, str(error)
    return mark, NOT_FORMATTED if mark is None else FORMATTED


def _row(path: str, mark: MetaProperties | None, state: str, *, has_metadata: bool) -> Row:
    directory_id = mark and mark.directory_id
    return {
        "LOG-DIR": path,
        "CLUSTER-ID": mark and mark.cluster_id,
        "NODE-ID": mark and mark.node_id,
        "DIRECTORY-ID": directory_id and uuid_to_text(directory_id),
        "METADATA": has_metadata,
        "STATE": state,
    }


def _contradictions(config: BrokerConfig, rows: list[Row]) -> list[str]:
    """Return sentences about directories of different clusters, or of another node."""
    problems = [
        f"{row['LOG-DIR']} belongs to node {row['NODE-ID']}, not to {config.node_id}"
        for row in rows
        if row["NODE-ID"] not in {None, config.node_id}
    ]
    clusters = dict.fromkeys(str(row["CLUSTER-ID"]) for row in rows if row["CLUSTER-ID"])
    if len(clusters) > 1:
        problems.append(f"the directories belong to different clusters: {', '.join(clusters)}")
    return problems
