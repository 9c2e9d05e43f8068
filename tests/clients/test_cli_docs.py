"""The commands in docs/cli.md are run in order, and print the output that the page shows."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

from ottla.testing import Broker
from tests.clients.cli_calls import SECONDS_MAX

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Return each command of the page with its expected output."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = piece.partition("\n")
            found.append((command, shown))
    return found


def test_the_commands_of_the_page_show_what_it_says(tmp_path: Path) -> None:
    ottla = tmp_path / "ottla"
    ottla.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
    ottla.chmod(0o755)
    checker = doctest.OutputChecker()
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with Broker(settings) as broker:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "OTTLA_BROKERS": broker.bootstrap_servers,
            "LC_ALL": "C",
        }
        for command, shown in commands():
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
                env=environment,
            )
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert checker.check_output(shown, done.stdout, flags), (command, done)


def test_the_page_has_commands() -> None:
    assert len(commands()) > 20
