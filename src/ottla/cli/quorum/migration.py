"""`ottla cluster migration`: the steps of a running cluster from ZooKeeper to a quorum."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

import typer

from ottla.broker.metadata_store.migration.operating import (
    MigrationStatus,
    MigrationStepError,
    ask_to_finalize,
    check_may_finalize,
    check_may_roll_back,
    listed,
    read_status,
    roll_back,
)
from ottla.broker.metadata_store.zookeeper.migration_nodes import MigrationPhase
from ottla.broker.metadata_store.zookeeper.znodes import UnreadableZnodeError
from ottla.cli.support.exit_codes import CommandError, one_sentence, say
from ottla.cli.support.options import Format
from ottla.cli.support.output import OutputFormat, Row, show_one
from ottla.cli.support.standard_input import Consent, DryRun, Yes, confirm_at
from ottla.concurrency.first_of import pause_seconds
from ottla.environment.zookeeper import ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.sessions import connect

FINALIZE_SECONDS: Final = 30.0
_SESSION_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.2
T = TypeVar("T")
ZooKeeper = Annotated[
    str, typer.Option("--zookeeper", metavar="HOSTS", help="zookeeper.connect of the brokers.")
]
migrations = typer.Typer(no_args_is_help=True)


@migrations.command("status")
def status(zookeeper: ZooKeeper, form: Format = OutputFormat.TABLE) -> None:
    """Show how far the migration to a quorum of controllers is, and the next step."""
    show_one(_row(_with_session(zookeeper, read_status)), form)


@migrations.command("finalize")
def finalize(zookeeper: ZooKeeper, yes: Yes = False, dry_run: DryRun = False) -> None:
    """End the migration: ZooKeeper is not written any more, and there is no way back.

    All brokers have to run with process.roles=broker. The active controller does the last step;
    the command waits for it.
    """

    async def work(session: ZooKeeperSession) -> None:
        found = await read_status(session)
        check_may_finalize(found)
        effects = ["write no decision to ZooKeeper any more: there is no way back after that"]
        if await confirm_at(_place(found, zookeeper), effects, Consent(yes, dry_run)):
            await ask_to_finalize(session)
            await _wait_until_final(session)
            say(f"the migration is finalized: {(await read_status(session)).next_step}")

    _with_session(zookeeper, work)


@migrations.command("rollback")
def rollback(zookeeper: ZooKeeper, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Give the controller's office back to the brokers with their metadata in ZooKeeper.

    Restart all brokers with zookeeper.connect first, and stop the controllers. ZooKeeper has every
    decision, so nothing is lost. The metadata logs of the controllers are worthless afterwards.
    """

    async def work(session: ZooKeeperSession) -> None:
        found = await read_status(session)
        check_may_roll_back(found)
        effects = [
            "let a broker with its metadata in ZooKeeper be the controller",
            "end the migration for the controllers: they have to be formatted for the next",
        ]
        if found.in_quorum:
            effects.append(
                f"leave the brokers {listed(found.in_quorum)} without a controller until they are"
                " started with zookeeper.connect"
            )
        if await confirm_at(_place(found, zookeeper), effects, Consent(yes, dry_run)):
            await roll_back(session)
            say("the migration is rolled back: brokers elect the controller in ZooKeeper again")

    _with_session(zookeeper, work)


async def _wait_until_final(session: ZooKeeperSession) -> None:
    """Wait for the active controller; CommandError if it refuses, or if none is there."""
    for _ in range(round(FINALIZE_SECONDS / _LOOK_SECONDS)):
        found = await read_status(session)
        if found.phase is MigrationPhase.FINALIZED:
            return
        if found.phase is not MigrationPhase.FINALIZING:
            check_may_finalize(found)
            raise CommandError("the active controller has refused: see its log")
        await pause_seconds(_LOOK_SECONDS)
    raise CommandError(
        f"no controller has finalized the migration within {FINALIZE_SECONDS:.0f} s: are they"
        " running? The next active controller does it"
    )


def _with_session(hosts: str, work: Callable[[ZooKeeperSession], Awaitable[T]]) -> T:
    async def run() -> T:
        session = await connect(hosts, _SESSION_SECONDS)
        try:
            return await work(session)
        finally:
            await session.close()

    with one_sentence(MigrationStepError, UnreadableZnodeError, ZooKeeperError):
        return asyncio.run(run())


def _place(found: MigrationStatus, hosts: str) -> str:
    return f"cluster {found.cluster_id} at {hosts}"


def _row(found: MigrationStatus) -> Row:
    return {
        "CLUSTER-ID": found.cluster_id,
        "PHASE": found.phase_name,
        "CONTROLLER": found.controller_id,
        "IN-ZOOKEEPER": listed(found.in_zookeeper),
        "IN-QUORUM": listed(found.in_quorum),
        "NEXT-STEP": found.next_step,
    }
