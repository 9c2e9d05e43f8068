"""`ottla cluster start` and `start-broker`: a cluster on this machine, until Ctrl-C.

`start-broker` asks the process of the cluster to start a broker again. Both processes share the
data directory of the cluster. A request is an empty file there, named after the broker. The
response is a file beside it with a sentence, empty if the broker was started. Only the process that
runs the cluster can start a broker: its children end with it.
"""

import asyncio
import fcntl
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError, one_sentence, say
from ottla.cli.support.options import key_values
from ottla.clients.admin.admin_cluster import ClusterDescription
from ottla.clients.admin.cluster_health import ClusterHealth, look_at
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import parse_settings
from ottla.model.api_error import ApiError
from ottla.registry.server import missing_packages
from ottla.runtime.small_files import remove, write_atomically
from ottla.testing.broker_process import START_SECONDS_MAX, BrokerProcess
from ottla.testing.child_process import ClusterError, wait_until
from ottla.testing.cluster import LOCK_NAME, Cluster

if TYPE_CHECKING:
    from rich.table import Table


DEFAULT_DATA_DIR: Final = Path("ottla-cluster")
REQUEST: Final = "start-broker-{}"
ANSWER: Final = "start-broker-{}.answer"
_ANSWER_SECONDS_MAX: Final = 2 * START_SECONDS_MAX
"""The other process starts one broker after the other."""

DEFAULT_PORT: Final = 9092
LOOK_SECONDS: Final = 1.0

_CLIENT: Final = {"request.timeout.ms": "2000", "default.api.timeout.ms": "2000"}
_COLUMNS: Final = ("BROKER", "ADDRESS", "STATE", "LEADERS", "UNDER-REPLICATED", "CONTROLLER")
BasePort = Annotated[
    int,
    typer.Option(
        min=0, max=65535, help="The first broker's port; the others follow. 0: free ones."
    ),
]
WithZooKeeper = Annotated[
    bool, typer.Option("--zookeeper", help="Keep the metadata in ZooKeeper, which needs Java.")
]
ZooKeeperServers = Annotated[
    int, typer.Option(min=1, help="How many ZooKeeper servers; three survive one's death.")
]
Show = Callable[["Status"], None]


def start_broker(
    number: Annotated[int, typer.Argument(min=1, metavar="ID", help="The number of the broker.")],
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The data directory of the cluster.")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Start a broker of a local cluster again, after it was killed or has ended.

    It keeps its port and its data. DIR selects the cluster, and must be the same as in `ottla
    cluster start`.
    """
    with one_sentence(ClusterError):
        sentence = _ask_to_start(data_dir.absolute(), number)
    if sentence:
        raise CommandError(sentence)
    say(f"broker {number} runs again")


def start_command(folder: Path, number: int) -> str:
    """Return the command line that starts this broker of the cluster in this directory."""
    option = "" if folder == DEFAULT_DATA_DIR.absolute() else f" --data-dir {folder}"
    return f"ottla cluster start-broker {number}{option}"


def clear_requests(folder: Path) -> None:
    """Remove requests and responses of an earlier run of the cluster."""
    for path in folder.glob(REQUEST.format("*")):
        path.unlink()


def answer_requests(local: Cluster) -> None:
    """Start the requested brokers, and write the responses."""
    for number, broker in local.brokers.items():
        request = local.data_dir / REQUEST.format(number)
        if request.exists():
            request.unlink()
            sentence = ""
            try:
                broker.start()
            except ClusterError as error:
                sentence = str(error)
            write_atomically(local.data_dir / ANSWER.format(number), sentence)


def _ask_to_start(folder: Path, number: int) -> str:
    """Return the response of the process that runs the cluster."""
    if not _is_held(folder / LOCK_NAME):
        raise CommandError(f"no cluster runs in {folder}: `ottla cluster start` starts one")
    if not (folder / f"broker-{number}.log").exists():
        raise CommandError(f"the cluster in {folder} has no broker {number}")
    answer, request = folder / ANSWER.format(number), folder / REQUEST.format(number)
    answer.unlink(missing_ok=True)
    request.touch()

    def is_answered() -> bool:
        if not _is_held(folder / LOCK_NAME):
            raise CommandError(f"the cluster in {folder} has ended")
        return answer.exists()

    try:
        wait_until(is_answered, _ANSWER_SECONDS_MAX, lambda: f"the cluster in {folder} is silent")
        return answer.read_text(encoding="utf-8")
    finally:
        request.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)


def _is_held(lock: Path) -> bool:
    """Whether a process holds the lock of a cluster's directory."""
    try:
        opened = lock.open("rb")
    except FileNotFoundError:
        return False
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def start(
    brokers: Annotated[int, typer.Option(min=1, help="How many brokers.")] = 3,
    base_port: BasePort = DEFAULT_PORT,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to keep data and logs. [default: ottla-cluster]"),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep data in a temporary directory, gone at exit.")
    ] = False,
    zookeeper: WithZooKeeper = False,
    zookeeper_servers: ZooKeeperServers = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="A setting of every broker. Repeatable."),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write HOST:PORT,… there once clients can connect."),
    ] = None,
) -> None:
    """Run a whole cluster on this machine until Ctrl-C or SIGTERM.

    Every broker is a separate process: kill one, see how the others react, and start it again with
    `ottla cluster start-broker`. The first three are controllers, too; fewer than three brokers
    have one controller. Ctrl-C and SIGTERM stop the brokers in order. The next start continues with
    the data in DIR.

    With --zookeeper the metadata is in ZooKeeper, which comes with `pip install
    'ottla[spark,zookeeper]'`.
    """
    if ephemeral and data_dir:
        raise WrongCallError("--ephemeral has a directory of its own: leave out --data-dir")
    if zookeeper_servers > 1 and not zookeeper:
        raise WrongCallError("--zookeeper-servers is only for --zookeeper")
    given = key_values(settings, "-X")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, signal.default_int_handler)
    with one_sentence(ClusterError):
        local = Cluster(
            brokers,
            given,
            data_dir=None if ephemeral else data_dir or DEFAULT_DATA_DIR,
            base_port=base_port,
            zookeeper=zookeeper,
            zookeeper_servers=zookeeper_servers,
            registries=not missing_packages(),
        )
        _run(local, ready_file)


def _run(local: Cluster, ready_file: Path | None) -> None:
    """Start it, watch it until Ctrl-C, and stop it; a second Ctrl-C kills it."""
    say(f"starting {len(local.brokers)} brokers; their logs are in {local.data_dir}")
    clear_requests(local.data_dir)
    with local:
        _watch_until_interrupted(local, ready_file)
        say("stopping; Ctrl-C again kills")
    say("stopped")


def _watch_until_interrupted(local: Cluster, ready_file: Path | None) -> None:
    try:
        if ready_file:
            write_atomically(ready_file, f"{local.bootstrap_servers}\n")
        _watch(local)
    except KeyboardInterrupt:
        return
    finally:
        if ready_file:
            remove(ready_file)


def _watch(local: Cluster) -> None:
    """Each second, start the requested brokers and show the status. Ends by KeyboardInterrupt."""
    pause = threading.Event()
    with shown(local) as show:
        while True:
            answer_requests(local)
            show(look(local))
            pause.wait(LOOK_SECONDS)


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

    metadata = "" if local.has_quorum else f"ZooKeeper at {local.zookeeper_connect}, "
    places = [f"{metadata}data and logs in {local.data_dir}"]
    if registries := [row.registry_url for row in local.brokers.values() if row.has_registry]:
        places.append(f"schema registries at {', '.join(registries)}")
    console = Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda status: live.update(_table(status, places), refresh=True)
    else:
        for place in places:
            say(place)
        said: list[str] = []

        def tell(status: Status) -> None:
            for sentence in status.sentences():
                if sentence not in said:
                    say(sentence)
            said[:] = status.sentences()

        yield tell


def _table(status: Status, places: Sequence[str]) -> "Table":
    from rich.table import Table  # noqa: PLC0415

    caption = "\n".join((status.summary(), *places, "Ctrl-C stops all"))
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption)
    table.caption_justify = "left"
    for name in _COLUMNS:
        table.add_column(name, overflow="fold")
    for row in status.brokers:
        numbers = ("-" if n is None else str(n) for n in (row.leaders, row.under_replicated))
        table.add_row(str(row.id), row.address, row.state, *numbers, "yes" * row.is_controller)
    return table
