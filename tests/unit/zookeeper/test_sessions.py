"""A broker that needs ZooKeeper but lacks kazoo names the package to install."""

import asyncio
import subprocess
import sys

import pytest

from ottla.model.settings.settings import InvalidSettingsError
from ottla.zookeeper import sessions


def test_without_kazoo_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ottla.zookeeper.kazoo_session", raising=False)
    monkeypatch.delattr("ottla.zookeeper.kazoo_session", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(InvalidSettingsError, match=r"ottla\[zookeeper\]"):
        asyncio.run(sessions.connect("127.0.0.1:1", 1.0))


def test_a_command_without_log_handlers_prints_no_lines_of_kazoo() -> None:
    code = (
        "import asyncio\n"
        "from ottla.environment.zookeeper import ConnectionLostError\n"
        "from ottla.zookeeper.sessions import connect\n"
        "try:\n"
        "    asyncio.run(connect('127.0.0.1:1', 0.5))\n"
        "except ConnectionLostError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "no ZooKeeper server answers at 127.0.0.1:1\n"
    assert done.stderr == ""
