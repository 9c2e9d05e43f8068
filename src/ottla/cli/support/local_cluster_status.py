"""The status that `ottla cluster start` shows: a live table, or lines."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.support.exit_codes import say
from ottla.cli.support.starting_brokers import start_command
from ottla.clients.admin.admin_cluster import ClusterDescription
from ottla.clients.admin.cluster_health import ClusterHealth, look_at
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import parse_settings
from ottla.model.api_error import ApiError
from ottla.testing.broker_process import BrokerProcess
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from rich.table import Table

_CLIENT: Final = {"request.timeout.ms": "2000", "default.api.timeout.ms": "2000"}
_COLUMNS: Final = ("BROKER", "ADDRESS", "STATE", "LEADERS", "UNDER-REPLICATED", "CONTROLLER")
Show = Callable[["Status"], None]


class BrokerState(NamedTuple):
    """The observed state of one broker."""

    id: int
    address: str
    state: str
    leaders: int | None
    under_replicated: int | None
    is_controller: bool


class Status(NamedTuple):
    """The cluster at one moment; health is None if no broker reports it."""

    brokers: tuple[BrokerState, ...]
    health: ClusterHealth | None

    def sentences(self) -> list[str]:
        """Return the status as text, a line for each broker and one for the partitions."""
        lines = [
            f"broker {row.id} at {row.address} {row.state}{', controller' * row.is_controller}"
            for row in self.brokers
        ]
        return [*lines, self.summary()]

    def summary(self) -> str:
        """Return the state of the partitions as text."""
        if self.health is None:
            return "no broker answers"
        return (
            f"partitions {self.health.partitions},"
            f" under-replicated {self.health.under_replicated}, offline {self.health.offline}"
        )


def look(local: Cluster) -> Status:
    """Query the status from any responding broker."""
    addresses = [row.bootstrap_servers for row in local.brokers.values() if row.is_running]
    seen = None
    if addresses:
        try:
            seen = asyncio.run(_ask(",".join(addresses)))
        except (ApiError, OSError):
            seen = None  # shown as a broker that does not respond
    rows = tuple(_state(broker, seen) for broker in local.brokers.values())
    return Status(rows, seen and seen[1])


async def _ask(addresses: str) -> tuple[ClusterDescription, ClusterHealth]:
    async with ClusterView(parse_settings(_CLIENT, addresses)) as view:
        return await look_at(view)


def _state(
    broker: BrokerProcess, seen: tuple[ClusterDescription, ClusterHealth] | None
) -> BrokerState:
    address = broker.bootstrap_servers
    if not broker.is_running:
        state = (
            f"has ended with {broker.exit_code}, see {broker.log};"
            f" `{start_command(broker.log.parent, broker.id)}` starts it again"
        )
    elif seen and broker.id not in {row.broker_id for row in seen[0].brokers}:
        state = f"runs as process {broker.pid}, and the others do not hear of it"
    else:
        state = f"runs as process {broker.pid}"
    if seen is None:
        return BrokerState(broker.id, address, state, None, None, is_controller=False)
    described, health = seen
    return BrokerState(
        broker.id,
        address,
        state,
        health.leaders_by_broker.get(broker.id, 0),
        health.behind_by_broker.get(broker.id, 0),
        is_controller=broker.is_running and described.controller_id == broker.id,
    )


@contextmanager
def shown(local: Cluster) -> Iterator[Show]:
    """Show a live table on a terminal; elsewhere a line per change."""
    from rich.console import Console  # noqa: PLC0415 - not for the other verbs
    from rich.live import Live  # noqa: PLC0415

    place = f"ZooKeeper at {local.zookeeper_connect}, data and logs in {local.data_dir}"
    console = Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda status: live.update(_table(status, place), refresh=True)
    else:
        say(place)
        said: list[str] = []

        def tell(status: Status) -> None:
            for sentence in status.sentences():
                if sentence not in said:
                    say(sentence)
            said[:] = status.sentences()

        yield tell


def _table(status: Status, place: str) -> "Table":
    from rich.table import Table  # noqa: PLC0415

    caption = f"{status.summary()}\n{place}\nCtrl-C stops all"
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption)
    table.caption_justify = "left"
    for name in _COLUMNS:
        table.add_column(name, overflow="fold")
    for row in status.brokers:
        numbers = ("-" if n is None else str(n) for n in (row.leaders, row.under_replicated))
        table.add_row(str(row.id), row.address, row.state, *numbers, "yes" * row.is_controller)
    return table
