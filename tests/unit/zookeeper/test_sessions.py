"""A broker that needs ZooKeeper but lacks kazoo names the package to install."""

import asyncio
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
