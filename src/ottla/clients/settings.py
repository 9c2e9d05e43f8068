"""How a client behaves: Kafka's names for the few settings that there are so far."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from ottla.clients.connection import Address

DEFAULT_PORT: Final = 9092
DEFAULT_CLIENT_ID: Final = "ottla"
_UNSUPPORTED: Final = ("security.", "sasl.", "ssl.", "tls.")


class InvalidClientSettingError(ValueError):
    """A setting that a client does not have, or that cannot be what was said."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the cluster is, and how long to wait for it."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = DEFAULT_CLIENT_ID
    connect_timeout_ms: int = 5_000
    """For a connection to be there, versions agreed on."""
    request_timeout_ms: int = 30_000
    """For the answer to one request."""
    timeout_ms: int = 30_000
    """For a whole call, with everything that is tried again in it."""
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000


_NUMBER_BY_NAME: Final = {
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
}
_CLIENT_ID: Final = "client.id"
_BOOTSTRAP: Final = ("bootstrap.servers", "metadata.broker.list", "brokers")


def parse_settings(values: Mapping[str, str], default_brokers: str) -> ClientSettings:
    """Read settings by Kafka's names; InvalidClientSettingError says which is wrong, and why."""
    brokers = next((values[name] for name in _BOOTSTRAP if name in values), default_brokers)
    numbers = {}
    for name, value in values.items():
        if name in _BOOTSTRAP or name == _CLIENT_ID:
            continue
        if (field := _NUMBER_BY_NAME.get(name)) is None:
            raise InvalidClientSettingError(_unknown(name))
        numbers[field] = _number(name, value)
    client_id = values.get(_CLIENT_ID, DEFAULT_CLIENT_ID)
    return ClientSettings(parse_addresses(brokers), client_id, **numbers)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Read `host:port,host:port`; the port is 9092 where none is given."""
    addresses = tuple(_address(word.strip()) for word in text.split(",") if word.strip())
    if not addresses:
        raise InvalidClientSettingError("no broker is named: give HOST:PORT")
    return addresses


def _address(word: str) -> Address:
    host, colon, port = word.rpartition(":")
    if not colon or word.endswith("]"):  # a bare name, or a bare IPv6 address in brackets
        host, port = word, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise InvalidClientSettingError(f"{word!r} is not an address: expected HOST:PORT")
    return Address(host, int(port))


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise InvalidClientSettingError(f"{name} is a number of milliseconds, not {value!r}")
    return int(value)


def _unknown(name: str) -> str:
    if name.startswith(_UNSUPPORTED):
        return f"{name} is not supported yet: connections have neither TLS nor SASL"
    nearest = get_close_matches(name, [*_NUMBER_BY_NAME, _CLIENT_ID, *_BOOTSTRAP], 1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(_NUMBER_BY_NAME)}"
    return f"{name} is not a client setting: {hint}"
