"""`ottla cluster start-broker`: asks the process of the cluster to start a broker again.

Both processes share the data directory of the cluster. A request is an empty file there, named
after the broker. The response is a file beside it with a sentence, empty if the broker was started.
Only the process that runs the cluster can start a broker: its children end with it.
"""

import fcntl
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.support.exit_codes import CommandError, one_sentence, say
from ottla.cli.support.ready_file import write_atomically
from ottla.testing.broker_process import START_SECONDS_MAX
from ottla.testing.child_process import ClusterError, wait_until
from ottla.testing.cluster import LOCK_NAME, Cluster

DEFAULT_DATA_DIR: Final = Path("ottla-cluster")
REQUEST: Final = "start-broker-{}"
ANSWER: Final = "start-broker-{}.answer"
_ANSWER_SECONDS_MAX: Final = 2 * START_SECONDS_MAX
"""The other process starts one broker after the other."""


def start_broker(
    number: Annotated[int, typer.Argument(min=1, metavar="ID", help="The number of the broker.")],
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The data folder of the cluster.")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Start a broker of a local cluster again, after it was killed or has ended.

    It keeps its port and its data. DIR selects the cluster, and must be the same as in `ottla
    cluster start`.
    """
    with one_sentence(ClusterError):
        sentence = _ask(data_dir.absolute(), number)
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


def _ask(folder: Path, number: int) -> str:
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
