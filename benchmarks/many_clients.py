"""Many clients of librdkafka at once, each a process of its own, with a load of its own.

`python -m benchmarks.many_clients WAY PORT TOPIC RECORD_BYTES RECORDS PARTITIONS` runs one client:
it prints that it is ready, starts at a line on stdin, and finally prints the seconds it took.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from benchmarks.librdkafka_load import Load, catch_up, produce

WAYS: Final = {"produce": produce, "catch-up": catch_up}


def together(way: str, port: int, topic: str, load: Load, clients: int) -> float:
    """Run this many clients at once, each with the load; return the seconds of the slowest."""
    with ExitStack() as stack:
        running = [stack.enter_context(_client(way, port, topic, load)) for _ in range(clients)]
        for client in running:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n", "a client did not start"
        for client in running:
            assert client.stdin is not None
            client.stdin.write("\n")
            client.stdin.flush()
        return max(map(_seconds, running))


def _seconds(client: "subprocess.Popen[str]") -> float:
    assert client.stdout is not None
    return float(client.stdout.readline())


@contextmanager
def _client(way: str, port: int, topic: str, load: Load) -> Iterator["subprocess.Popen[str]"]:
    words = [way, str(port), topic, *map(str, load)]
    command = [sys.executable, "-m", "benchmarks.many_clients", *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def main() -> None:
    """Run as one of the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("load", type=int, nargs=3)
    options = parser.parse_args()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    seconds = WAYS[options.way](options.port, options.topic, Load(*options.load))
    sys.stdout.write(f"{seconds}\n")


if __name__ == "__main__":
    main()
