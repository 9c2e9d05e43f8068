"""`ottla quorum`: the controllers of a cluster, and changes of its voters."""

import posixpath
import socket
from typing import Annotated, Final, NamedTuple

import typer

from ottla.cli.quorum.node_options import Config, node_config
from ottla.cli.support.exit_codes import CommandError, WrongCallError, one_sentence, say
from ottla.cli.support.options import DEFAULT_BROKERS, Brokers, Format, Settings, with_cluster
from ottla.cli.support.output import OutputFormat, Row, json_key, show, show_one
from ottla.clients.admin.admin_cluster import QuorumDescription, QuorumEndpoint, QuorumReplica
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.identifiers import uuid_from_text, uuid_to_text
from ottla.model.settings.broker_config import BrokerConfig
from ottla.runtime.disk import KernelDisk
from ottla.storage.files.checkpoints import (
    META_PROPERTIES_FILE,
    CorruptCheckpointError,
    read_meta_properties,
)

COLUMNS: Final = ("NODE", "ROLE", "DIRECTORY-ID", "ADDRESS", "END-OFFSET", "LAG", "LAG-MS")
quorums = typer.Typer(no_args_is_help=True)


class NewVoter(NamedTuple):
    """A controller that is to vote."""

    id: int
    directory_id: bytes
    endpoints: tuple[QuorumEndpoint, ...]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(quorums, name=name, help=summary)


@quorums.command("status")
@quorums.command("describe", hidden=True)
def status(
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the leader of the metadata log, and how far each voter and observer is.

    LAG counts records that a replica lacks; LAG-MS is the time since it lacked none.
    """

    async def work(view: ClusterView) -> tuple[str, QuorumDescription]:
        admin = AsyncAdmin.over(view)
        return (await admin.cluster.describe()).cluster_id, await admin.cluster.quorum()

    cluster_id, found = with_cluster(brokers, settings, work)
    rows = replica_rows(found)
    summary: dict[str, object] = {
        "CLUSTER-ID": cluster_id,
        "LEADER": found.leader_id,
        "EPOCH": found.leader_epoch,
        "HIGH-WATERMARK": found.high_watermark,
    }
    if form is OutputFormat.JSON:
        summary["REPLICAS"] = [{json_key(key): row[key] for key in row} for row in rows]
    show_one(summary, form)
    if form is OutputFormat.TABLE:
        show(rows, COLUMNS, form)


@quorums.command("add")
def add(
    config: Config = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Let a controller vote that runs and has caught up; call it on the machine of the controller.

    Its id, its addresses and the id of its directory come from its settings (--config, the
    environment) and its metadata directory. The command waits until the change is committed.
    """
    with one_sentence(CorruptCheckpointError, UnicodeDecodeError):
        voter = new_voter(node_config(config, None))
    with_cluster(brokers, settings, lambda view: AsyncAdmin.over(view).cluster.add_voter(*voter))
    say(f"controller {voter.id} votes, with directory {uuid_to_text(voter.directory_id)}")


@quorums.command("remove")
def remove(
    number: Annotated[int, typer.Argument(min=0, metavar="ID", help="The id of the controller.")],
    directory_id: Annotated[
        str | None,
        typer.Option("--directory-id", metavar="ID", help="Its directory, if not the present one."),
    ] = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Take the vote from a controller, which may be gone for good."""
    given = _directory_id(directory_id)

    async def work(view: ClusterView) -> bytes:
        admin = AsyncAdmin.over(view)
        directory = _directory_of(number, await admin.cluster.quorum()) if given is None else given
        await admin.cluster.remove_voter(number, directory)
        return directory

    directory = with_cluster(brokers, settings, work)
    say(f"controller {number} with directory {uuid_to_text(directory)} does not vote any more")


def replica_rows(found: QuorumDescription) -> list[Row]:
    """Return a row for each voter and observer: the leader first, then by id."""
    caught_up_ms = max((row.last_caught_up_ms for row in found.voters), default=-1)

    def row_of(replica: QuorumReplica, role: str) -> Row:
        endpoints = found.endpoints_by_voter.get(replica.replica_id, ())
        is_known = replica.end_offset >= 0
        was_caught_up = min(replica.last_caught_up_ms, caught_up_ms) >= 0
        return {
            "NODE": replica.replica_id,
            "ROLE": role,
            "DIRECTORY-ID": uuid_to_text(replica.directory_id),
            "ADDRESS": f"{endpoints[0].host}:{endpoints[0].port}" if endpoints else None,
            "END-OFFSET": replica.end_offset if is_known else None,
            "LAG": max(0, found.high_watermark - replica.end_offset) if is_known else None,
            "LAG-MS": caught_up_ms - replica.last_caught_up_ms if was_caught_up else None,
        }

    def place(row: QuorumReplica) -> tuple[bool, int]:
        return row.replica_id != found.leader_id, row.replica_id

    return [
        *(
            row_of(row, "leader" if row.replica_id == found.leader_id else "voter")
            for row in sorted(found.voters, key=place)
        ),
        *(row_of(row, "observer") for row in sorted(found.observers, key=place)),
    ]


def new_voter(config: BrokerConfig) -> NewVoter:
    """Return a controller by its settings and the mark in its metadata directory."""
    if not config.is_controller:
        raise WrongCallError(
            "process.roles has no controller: give the settings of the new controller by --config"
        )
    path = posixpath.join(config.metadata_folder, META_PROPERTIES_FILE)
    mark = read_meta_properties(KernelDisk(), path)
    if mark is None or mark.directory_id is None:
        raise CommandError(f"{config.metadata_folder} is not formatted by `ottla storage format`")
    if mark.node_id != config.node_id:
        raise CommandError(f"{path} belongs to node {mark.node_id}, not to {config.node_id}")
    if not all(listener.port for listener in config.controller_listeners):
        raise WrongCallError("a controller needs a fixed port, and one of its listeners has 0")
    ports = {listener.name: listener.port for listener in config.controller_listeners}
    advertised = config.controllers_to_advertise(ports, socket.gethostname())
    return NewVoter(
        config.node_id, mark.directory_id, tuple(QuorumEndpoint(*one) for one in advertised)
    )


def _directory_of(number: int, found: QuorumDescription) -> bytes:
    directories = [row.directory_id for row in found.voters if row.replica_id == number]
    if not directories:
        voters = ", ".join(str(row.replica_id) for row in found.voters)
        raise CommandError(f"controller {number} does not vote: the voters are {voters}")
    return directories[0]


def _directory_id(text: str | None) -> bytes | None:
    try:
        return None if text is None else uuid_from_text(text)
    except ValueError as error:
        raise WrongCallError(f"--directory-id: {error}") from None
