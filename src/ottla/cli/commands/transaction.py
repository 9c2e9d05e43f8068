"""`ottla transaction`: lists transactions, and ends hanging ones."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    Brokers,
    Format,
    Settings,
    named_partitions,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, Row, show, show_one
from ottla.cli.support.positions import parse_duration_ms
from ottla.clients.admin.admin_producers import ActiveProducer
from ottla.clients.admin.admin_transactions import (
    TransactionDescription,
    TransactionFilter,
    TransactionStatus,
)
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.settings import INT32_MAX, INT64_MAX
from ottla.runtime.clock import SystemClock

LIST_COLUMNS: Final = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")
PRODUCER_COLUMNS: Final = (
    "TOPIC",
    "PARTITION",
    "PRODUCER-ID",
    "PRODUCER-EPOCH",
    "COORDINATOR-EPOCH",
    "LAST-SEQUENCE",
    "LAST-TIMESTAMP",
    "START-OFFSET",
)
HANGING_COLUMNS: Final = (
    "TOPIC",
    "PARTITION",
    "PRODUCER-ID",
    "PRODUCER-EPOCH",
    "COORDINATOR-EPOCH",
    "START-OFFSET",
    "LAST-TIMESTAMP",
    "DURATION-MIN",
)
ABORT_COLUMNS: Final = ("TOPIC", "PARTITION", "PRODUCER-ID", "STATUS")
UNFINISHED: Final = (
    TransactionStatus.ONGOING,
    TransactionStatus.PREPARE_COMMIT,
    TransactionStatus.PREPARE_ABORT,
    TransactionStatus.PREPARE_EPOCH_FENCE,
)
MAX_TIMEOUT_MINUTES: Final = 15
"""Kafka's default for transaction.max.timeout.ms, after which coordinators abort by themselves."""
_MINUTE_MS: Final = 60_000
INT16_MAX: Final = 2**15 - 1
Numbers = tuple[int, int, int]
"""Producer id, producer epoch and coordinator epoch."""
TransactionalId = Annotated[
    str, typer.Argument(metavar="ID", help="The transactional.id of a producer.")
]
Words = Annotated[
    list[str], typer.Argument(metavar="TOPIC[:0,1]…", help="Topics, or partitions of them.")
]
transactions = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(transactions, name=name, help=summary)


@transactions.command("list")
@transactions.command("ls", hidden=True)
def list_transactions(
    states: Annotated[
        list[TransactionStatus] | None,
        typer.Option("--state", case_sensitive=False, help="Only in this state. Repeatable."),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option(
            "--producer-id", min=0, max=INT64_MAX, help="Only of this producer. Repeatable."
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--duration", metavar="10m", help="Only transactions older than this."),
    ] = None,
    id_pattern: Annotated[
        str | None,
        typer.Option("--id", metavar="REGEX", help="Only transactional ids that match."),
    ] = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """List transactional ids and the states of their transactions (also: ls)."""
    is_any_age = duration is None
    wanted = TransactionFilter(
        states or (() if is_any_age else UNFINISHED),
        producer_ids or (),
        None if duration is None else parse_duration_ms(duration),
        id_pattern,
    )
    found = with_cluster(
        brokers, settings, lambda view: AsyncAdmin.over(view).transactions.list(wanted)
    )
    show([dict(zip(LIST_COLUMNS, row, strict=True)) for row in found], LIST_COLUMNS, form)


@transactions.command("describe")
@transactions.command("info", hidden=True)
def describe(
    transactional_id: TransactionalId,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show one transactional id, and the partitions that wait for its end (also: info)."""
    found = with_cluster(
        brokers,
        settings,
        lambda view: AsyncAdmin.over(view).transactions.describe(transactional_id),
    )
    show_one(_description_row(found[transactional_id], SystemClock().now_ms()), form)


@transactions.command("producers")
def producers(
    words: Words,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the producers that partitions remember, and where their transactions began."""

    async def work(view: ClusterView) -> list[ActiveProducer]:
        admin = AsyncAdmin.over(view)
        names = [row.name for row in await named_partitions(admin, words)]
        return _flat(await admin.producers.describe(names))

    found = with_cluster(brokers, settings, work)
    show([_producer_row(row) for row in found], PRODUCER_COLUMNS, form)


@transactions.command("find-hanging")
def find_hanging(
    words: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Only this topic, or these partitions. Repeatable.",
        ),
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", help="Ask this broker instead of the leader.")
    ] = None,
    timeout_minutes: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            min=0,
            metavar="MINUTES",
            help="How long a transaction may write nothing and not count as hanging.",
        ),
    ] = MAX_TIMEOUT_MINUTES,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Find open transactions that no coordinator will ever end, and that block readers."""
    clock = SystemClock()

    async def work(view: ClusterView) -> Sequence[ActiveProducer]:
        admin = AsyncAdmin.over(view)
        names = await _partitions(admin, words, broker)
        if not names and broker is not None and broker not in view.broker_ids:
            raise CommandError(
                f"there is no broker {broker}: `ottla broker list` shows the registered brokers"
            )
        oldest_ms = clock.now_ms() - timeout_minutes * _MINUTE_MS
        return await admin.transactions.hanging(
            [
                row
                for row in _flat(await admin.producers.describe(names, broker_id=broker))
                if row.start_offset is not None and row.last_timestamp_ms < oldest_ms
            ]
        )

    found = with_cluster(brokers, settings, work)
    now_ms = clock.now_ms()
    show([_hanging_row(row, now_ms) for row in found], HANGING_COLUMNS, form)


@transactions.command("abort")
def abort(
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where it hangs.")],
    partition: Annotated[
        int, typer.Option("--partition", "-p", min=0, help="The partition of the topic.")
    ],
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="Where it begins; it must hang.")
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            min=0, max=INT64_MAX, help="Instead: the producer's id. Nothing is checked then."
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(min=0, max=INT16_MAX, help="With --producer-id.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option(min=-1, max=INT32_MAX, help="With --producer-id.")
    ] = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Abort a hanging transaction in one partition."""
    which = _which(start_offset, producer_id, producer_epoch, coordinator_epoch)
    name = TopicPartition(topic, partition)

    async def work(view: ClusterView) -> int:
        admin = AsyncAdmin.over(view)
        numbers = await _hanging_since(admin, name, which) if isinstance(which, int) else which
        await admin.producers.abort(name, *numbers)
        return numbers[0]

    aborted_id = with_cluster(brokers, settings, work)
    cells = (topic, partition, aborted_id, "aborted")
    show([dict(zip(ABORT_COLUMNS, cells, strict=True))], ABORT_COLUMNS, form)


@transactions.command("terminate")
def terminate(
    transactional_id: TransactionalId,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Abort the transaction of a transactional id everywhere, and fence its producer."""
    with_cluster(
        brokers,
        settings,
        lambda view: AsyncAdmin.over(view).transactions.terminate(transactional_id),
    )
    row = {"TRANSACTIONAL-ID": transactional_id, "STATUS": "terminated"}
    show([row], ("TRANSACTIONAL-ID", "STATUS"), form)


def _flat(found: Mapping[TopicPartition, Sequence[ActiveProducer]]) -> list[ActiveProducer]:
    return [row for rows in found.values() for row in rows]


def _which(start_offset: int | None, *numbers: int | None) -> int | Numbers:
    """Return the identification of a transaction: its first offset, or numbers; not both."""
    match (start_offset, *numbers):
        case (int() as offset, None, None, None):
            return offset
        case (None, int() as producer_id, int() as producer_epoch, int() as coordinator_epoch):
            return producer_id, producer_epoch, coordinator_epoch
        case _:
            raise WrongCallError(
                "say which one: --start-offset, or all of --producer-id, --producer-epoch and "
                "--coordinator-epoch"
            )


async def _partitions(
    admin: AsyncAdmin, words: Sequence[str] | None, broker: int | None
) -> list[TopicPartition]:
    found = await (named_partitions(admin, words) if words else admin.partitions.describe())
    return [row.name for row in found if broker is None or broker in row.replicas]


async def _hanging_since(admin: AsyncAdmin, name: TopicPartition, start_offset: int) -> Numbers:
    found = await admin.producers.open_since(name, start_offset)
    if not await admin.transactions.hanging([found]):
        raise CommandError(
            f"the transaction of producer {found.producer_id} does not hang: its coordinator ends "
            "it, or `ottla transaction terminate ID` does"
        )
    return found.producer_id, found.producer_epoch, found.coordinator_epoch


def _description_row(found: TransactionDescription, now_ms: int) -> Row:
    is_going_on = found.start_ms is not None and found.state in UNFINISHED
    return {
        "TRANSACTIONAL-ID": found.transactional_id,
        "COORDINATOR": found.coordinator_id,
        "PRODUCER-ID": found.producer_id,
        "PRODUCER-EPOCH": found.producer_epoch,
        "STATE": found.state,
        "TIMEOUT-MS": found.timeout_ms,
        "START-TIME": found.start_ms,
        "DURATION-MS": now_ms - (found.start_ms or 0) if is_going_on else None,
        "PARTITIONS": [str(name) for name in found.partitions],
    }


def _producer_row(row: ActiveProducer) -> Row:
    return {
        "TOPIC": row.partition.topic,
        "PARTITION": row.partition.partition,
        "PRODUCER-ID": row.producer_id,
        "PRODUCER-EPOCH": row.producer_epoch,
        "COORDINATOR-EPOCH": row.coordinator_epoch,
        "LAST-SEQUENCE": row.last_sequence,
        "LAST-TIMESTAMP": row.last_timestamp_ms,
        "START-OFFSET": row.start_offset,
    }


def _hanging_row(row: ActiveProducer, now_ms: int) -> Row:
    minutes = (now_ms - row.last_timestamp_ms) // _MINUTE_MS
    return {**_producer_row(row), "DURATION-MIN": minutes}
