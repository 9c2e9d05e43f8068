"""Settings of clients, by Kafka's names."""

import pytest

from ottla.clients.connection import Address
from ottla.clients.settings import InvalidClientSettingError, parse_addresses, parse_settings


def test_addresses_are_separated_by_commas_and_have_a_default_port() -> None:
    assert parse_addresses("a:1, b,[::1]:2,[::1]") == (
        Address("a", 1),
        Address("b", 9092),
        Address("::1", 2),
        Address("::1", 9092),
    )


@pytest.mark.parametrize("text", ["", ",", "a:", ":1", "a:b", "a:0", "a:65536", "a:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidClientSettingError):
        parse_addresses(text)


def test_settings_have_kafkas_names() -> None:
    settings = parse_settings(
        {"bootstrap.servers": "a:1", "client.id": "me", "request.timeout.ms": "7"}, "b:2"
    )
    assert settings.bootstrap_servers == (Address("a", 1),)
    assert (settings.client_id, settings.request_timeout_ms) == ("me", 7)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("request.timeout", "1", "request.timeout.ms"),
        ("request.timeout.ms", "soon", "milliseconds"),
        ("sasl.mechanism", "PLAIN", "not supported"),
        ("zzz", "1", "known are"),
    ],
)
def test_an_unknown_setting_says_what_was_meant(name: str, value: str, word: str) -> None:
    with pytest.raises(InvalidClientSettingError, match=word):
        parse_settings({name: value}, "a:1")


def test_an_address_is_shown_as_it_is_written() -> None:
    assert [str(row) for row in parse_addresses("a:1,[::1]:2")] == ["a:1", "[::1]:2"]
