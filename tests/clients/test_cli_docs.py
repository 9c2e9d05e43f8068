"""The commands of two pages are run in order, and print the output that the pages show."""

import doctest
import os
import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

# Imported before a broker's thread does it: in CPython 3.11 two threads cannot parse at once, and
# pytest parses every module of ottla to rewrite its assertions.
import ottla.registry.broker_registry  # noqa: F401
from ottla.testing import Broker
from tests.clients.cli_calls import SECONDS_MAX

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS_MIN = {"cli.md": 20, "schema-check.md": 15}
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[tuple[str, str]]:
    """Return each command of a page, with its lines of input, and its expected output."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *lines = piece.splitlines(keepends=True)
            typed = list(takewhile(lambda line: line.startswith("> "), lines))
            command = first + "".join(line.removeprefix("> ") for line in typed)
            found.append((command, "".join(lines[len(typed) :])))
    return found


@pytest.mark.parametrize("page", COMMANDS_MIN)
def test_the_commands_of_a_page_show_what_it_says(page: str, tmp_path: Path) -> None:
    ottla = tmp_path / "ottla"
    ottla.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
    ottla.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    checker = doctest.OutputChecker()
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with Broker(settings) as broker:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "OTTLA_BROKERS": broker.bootstrap_servers,
            "LC_ALL": "C.UTF-8",
        }
        if page == "schema-check.md":
            environment["OTTLA_SCHEMA_REGISTRY_URL"] = broker.registry_url
        for command, shown in commands(page):
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
                env=environment,
                cwd=folder,
            )
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert checker.check_output(shown, done.stdout, flags), (command, done)


@pytest.mark.parametrize("page", COMMANDS_MIN)
def test_the_page_has_commands(page: str) -> None:
    assert len(commands(page)) > COMMANDS_MIN[page]
