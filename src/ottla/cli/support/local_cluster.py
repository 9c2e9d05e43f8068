"""`ottla cluster start`: brokers and a ZooKeeper on this machine, watched until Ctrl-C."""

import signal
import threading
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.support.exit_codes import WrongCallError, one_sentence, say
from ottla.cli.support.local_cluster_status import look, shown
from ottla.cli.support.options import key_values
from ottla.cli.support.ready_file import remove, write_atomically
from ottla.cli.support.starting_brokers import DEFAULT_DATA_DIR, answer_requests, clear_requests
from ottla.testing.child_process import ClusterError
from ottla.testing.cluster import Cluster

DEFAULT_PORT: Final = 9092
LOOK_SECONDS: Final = 1.0


def start(
    brokers: Annotated[int, typer.Option(min=1, help="How many brokers.")] = 3,
    base_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="The first broker's port; the others follow. 0: free ones."
        ),
    ] = DEFAULT_PORT,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to keep data and logs. [default: ottla-cluster]"),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep data in a temporary folder, gone at exit.")
    ] = False,
    zookeeper_servers: Annotated[
        int, typer.Option(min=1, help="How many ZooKeeper servers; three survive one's death.")
    ] = 1,
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
    `ottla cluster start-broker`. Ctrl-C and SIGTERM
    stop the brokers in order, and ZooKeeper after them. The next start continues with the data in
    DIR. ZooKeeper needs Java, and comes with `pip install 'ottla[spark,zookeeper]'`.
    """
    if ephemeral and data_dir:
        raise WrongCallError("--ephemeral has a folder of its own: leave out --data-dir")
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
            zookeeper_servers=zookeeper_servers,
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
