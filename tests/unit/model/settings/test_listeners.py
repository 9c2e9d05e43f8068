import pytest

from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import (
    ADVERTISED_LISTENERS,
    LISTENER_NAME,
    LISTENER_NAMES,
    LISTENER_PROTOCOLS,
    LISTENERS,
    HttpListener,
    Listener,
    ListenerProtocol,
    SecurityProtocol,
    advertised_listeners,
)
from ottla.model.settings.settings import InvalidSettingsError, Kind, text_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", [("PLAINTEXT", "", 9092)]),
        ("PLAINTEXT://0.0.0.0:0", [("PLAINTEXT", "0.0.0.0", 0)]),
        ("external://broker-1.example.org:65535", [("EXTERNAL", "broker-1.example.org", 65535)]),
        ("A://[::1]:1, B_2://[fe80::1%eth0]:2", [("A", "::1", 1), ("B_2", "fe80::1%eth0", 2)]),
    ],
)
def test_a_listener_has_a_name_a_host_and_a_port(
    text: str, expected: list[tuple[str, str, int]]
) -> None:
    listeners = LISTENERS.read(text)
    assert listeners == tuple(Listener(*fields) for fields in expected)
    assert LISTENERS.read(text_of(listeners)) == listeners


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:",
        "PLAINTEXT://localhost:65536",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://local host:9092",
        "PLAINTEXT://a:1,",
        "://a:1",
        "A://a:1,a://b:2",
        "A://a:9092/path",
    ],
)
def test_what_is_no_listener_is_refused(text: str) -> None:
    for kind in (LISTENERS, ADVERTISED_LISTENERS):
        with pytest.raises(ValueError, match=r".*"):
            kind.read(text)


def test_there_may_be_nothing_to_advertise_but_must_be_something_to_listen_on() -> None:
    assert ADVERTISED_LISTENERS.read("") == ()
    with pytest.raises(ValueError, match=r"^$"):
        LISTENERS.read("")


def test_names_have_protocols() -> None:
    protocols = LISTENER_PROTOCOLS.read("internal:plaintext, CLIENTS:SASL_SSL")
    assert protocols == (
        ListenerProtocol("INTERNAL", SecurityProtocol.PLAINTEXT),
        ListenerProtocol("CLIENTS", SecurityProtocol.SASL_SSL),
    )
    assert text_of(protocols) == "INTERNAL:PLAINTEXT,CLIENTS:SASL_SSL"
    assert LISTENER_NAMES.read("a, b") == ("A", "B")
    assert LISTENER_NAMES.read("") == ()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (LISTENER_PROTOCOLS, "A"),
        (LISTENER_PROTOCOLS, "A:TLS"),
        (LISTENER_PROTOCOLS, "A:SSL,a:PLAINTEXT"),
        (LISTENER_NAME, "a b"),
        (LISTENER_NAMES, "a,,b"),
    ],
)
def test_other_names_and_protocols_are_refused(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        kind.read(text)


# -- advertised listeners -------------------------------------------------------------------------


def told(listeners: str, advertised: str = "") -> str:
    ports = {"A": 40_001, "B": 40_002}
    return text_of(
        advertised_listeners(
            LISTENERS.read(listeners), ADVERTISED_LISTENERS.read(advertised), ports, "my-host"
        )
    )


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("A://localhost:9092", "A://localhost:9092"),
        ("A://127.0.0.1:9092", "A://127.0.0.1:9092"),
        ("A://[::1]:9092", "A://[::1]:9092"),
        ("A://10.0.0.7:9092", "A://10.0.0.7:9092"),
        ("A://broker.example.org:9092", "A://broker.example.org:9092"),
        ("A://:9092", "A://my-host:9092"),
        ("A://0.0.0.0:9092", "A://my-host:9092"),
        ("A://[::]:9092", "A://my-host:9092"),
        ("A://127.0.0.1:0,B://:0", "A://127.0.0.1:40001,B://my-host:40002"),
    ],
)
def test_clients_are_told_what_they_can_connect_to(listeners: str, expected: str) -> None:
    assert told(listeners) == expected


def test_what_was_set_is_told_instead() -> None:
    assert told("A://:9092", "A://proxy:19092") == "A://proxy:19092"


def test_a_listener_that_was_left_out_is_told_as_it_is() -> None:
    expected = "A://proxy:19092,B://my-host:9093"
    assert told("A://:9092,B://:9093", "A://proxy:19092") == expected


def test_what_was_set_without_a_host_or_a_port_is_completed() -> None:
    assert told("A://127.0.0.1:0", "A://:0") == "A://my-host:40001"


def parsed(text: str) -> HttpListener | None:
    return BrokerConfig.parse({"ottla.admin.listener": text}).ottla_admin_listener


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("", None),
        ("127.0.0.1:9644", HttpListener("127.0.0.1", 9644)),
        (":0", HttpListener("", 0)),
        ("[::1]:65535", HttpListener("::1", 65535)),
        ("broker-1.example.com:80", HttpListener("broker-1.example.com", 80)),
    ],
)
def test_a_place_is_read_and_written_as_it_was(text: str, listener: HttpListener | None) -> None:
    assert parsed(text) == listener
    assert listener is None or str(listener) == text


@pytest.mark.parametrize("text", ["9644", "localhost", "localhost:", ":65536", "::1:9644", "a b:1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettingsError, match="it must be HOST:PORT, or empty"):
        parsed(text)
