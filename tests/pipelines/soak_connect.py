"""Kills change capture and its copy many times: `python -m tests.pipelines.soak_connect`."""

import argparse
import sys
import tempfile
from pathlib import Path

from examples.local_postgres import local_postgres
from ottla.testing import Broker
from tests.pipelines.conftest import SETTINGS
from tests.pipelines.connect.killing import killed_rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often all processes are killed")
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        local_postgres() as postgres,
        Broker(SETTINGS) as broker,
    ):
        servers = broker.bootstrap_servers
        events = killed_rounds(
            postgres, servers, Path(folder), rounds=words.rounds, seed=words.seed
        )
    sys.stdout.write(f"killed {words.rounds} times: {events} events, none lost, none doubled\n")


if __name__ == "__main__":
    main()
