"""Parsing the address of the admin listener."""

import pytest

from ottla.model.settings.admin_listener import AdminListener
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.settings import InvalidSettingsError


def parsed(text: str) -> AdminListener | None:
    return BrokerConfig.parse({"ottla.admin.listener": text}).ottla_admin_listener


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("", None),
        ("127.0.0.1:9644", AdminListener("127.0.0.1", 9644)),
        (":0", AdminListener("", 0)),
        ("[::1]:65535", AdminListener("::1", 65535)),
        ("broker-1.example.com:80", AdminListener("broker-1.example.com", 80)),
    ],
)
def test_a_place_is_read_and_written_as_it_was(text: str, listener: AdminListener | None) -> None:
    assert parsed(text) == listener
    assert listener is None or str(listener) == text


@pytest.mark.parametrize("text", ["9644", "localhost", "localhost:", ":65536", "::1:9644", "a b:1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettingsError, match="it must be HOST:PORT, or empty"):
        parsed(text)
