"""Listeners: address, protocol, and the address that is advertised to clients."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.model.address import Address
from ottla.model.identifiers import BrokerId
from ottla.model.settings.settings import INT32_MAX, Kind, SettingType, split_list

PORT_MAX: Final = 2**16 - 1

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_LISTENER = re.compile(
    rf"({_NAME})://(?:\[([0-9A-Za-z%._:-]*)\]|([0-9A-Za-z%._-]*)):([0-9]{{1,5}})"
)
_PROTOCOL = re.compile(rf"({_NAME}):([A-Za-z_]+)")
_EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - nothing is bound here

_PLACE = re.compile(r"(?:\[([0-9A-Za-z%._:-]*)\]|([0-9A-Za-z%._-]*)):([0-9]{1,5})")


class SecurityProtocol(StrEnum):
    """A listener's encryption, none or TLS, and authentication, none or SASL."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Listener(NamedTuple):
    """A name, a host and a port. No host means every address; port 0 is chosen by the kernel."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_on_every_address(self) -> bool:
        """Whether the host stands for every address, so that clients cannot connect to it."""
        return self.host in _EVERY_ADDRESS


class QuorumVoter(NamedTuple):
    """A voter of a quorum with a fixed set of voters (kraft.version 0)."""

    id: BrokerId
    address: Address

    def __str__(self) -> str:
        return f"{self.id}@{self.address}"


class ListenerProtocol(NamedTuple):
    """The protocol of the listeners of a name."""

    name: str
    protocol: SecurityProtocol

    def __str__(self) -> str:
        return f"{self.name}:{self.protocol}"


def advertised_listeners(
    listeners: Iterable[Listener],
    advertised: Iterable[Listener],
    port_by_name: Mapping[str, int],
    host_name: str,
) -> tuple[Listener, ...]:
    """Return the advertised address of each listener: the configured one, else its own.

    `port_by_name` has the bound ports, in place of port 0. `host_name` is this machine's, in place
    of hosts that mean every address. A listener on localhost is advertised as such, and is
    reachable from this machine only.
    """
    advertised_by_name = {listener.name: listener for listener in advertised}
    told = [advertised_by_name.get(listener.name, listener) for listener in listeners]
    return tuple(
        listener._replace(
            host=host_name if listener.is_on_every_address else listener.host,
            port=listener.port or port_by_name[listener.name],
        )
        for listener in told
    )


# -- reading --------------------------------------------------------------------------------------


def _listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[4]) > PORT_MAX:
        raise ValueError(text)
    return Listener(match[1].upper(), match[2] or match[3] or "", int(match[4]))


def _listeners(text: str) -> tuple[Listener, ...]:
    listeners = tuple(map(_listener, split_list(text)))
    if len({listener.name for listener in listeners}) != len(listeners):
        raise ValueError(text)
    return listeners


def _some_listeners(text: str) -> tuple[Listener, ...]:
    if not text:
        raise ValueError(text)
    return _listeners(text)


def _protocol(text: str) -> ListenerProtocol:
    match = _PROTOCOL.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return ListenerProtocol(match[1].upper(), SecurityProtocol(match[2].upper()))


def _protocols(text: str) -> tuple[ListenerProtocol, ...]:
    protocols = tuple(map(_protocol, split_list(text)))
    if len({protocol.name for protocol in protocols}) != len(protocols):
        raise ValueError(text)
    return protocols


def _name(text: str) -> str:
    if not re.fullmatch(_NAME, text):
        raise ValueError(text)
    return text.upper()


def _names(text: str) -> tuple[str, ...]:
    return tuple(map(_name, split_list(text)))


def _address(text: str) -> Address:
    """Read the address of a controller; other machines must be able to connect to it."""
    match = _PLACE.fullmatch(text)
    host = "" if match is None else match[1] or match[2] or ""
    if match is None or host in _EVERY_ADDRESS or not 0 < int(match[3]) <= PORT_MAX:
        raise ValueError(text)
    return Address(host, int(match[3]))


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(map(_address, split_list(text)))


def _voter(text: str) -> QuorumVoter:
    voter_id, _, address = text.partition("@")
    if not re.fullmatch("[0-9]{1,10}", voter_id) or int(voter_id) > INT32_MAX:
        raise ValueError(text)
    return QuorumVoter(BrokerId(int(voter_id)), _address(address))


def _voters(text: str) -> tuple[QuorumVoter, ...]:
    voters = tuple(map(_voter, split_list(text)))
    if len({voter.id for voter in voters}) != len(voters):
        raise ValueError(text)
    return voters


LISTENERS: Final = Kind(
    SettingType.LIST,
    "a list of listeners with different names, each as NAME://HOST:PORT",
    _some_listeners,
)
ADVERTISED_LISTENERS: Final = Kind(SettingType.LIST, f"{LISTENERS.allowed}, or empty", _listeners)
LISTENER_PROTOCOLS: Final = Kind(
    SettingType.STRING,
    f"a list of NAME:PROTOCOL, each name once, with protocols {', '.join(SecurityProtocol)}",
    _protocols,
)
LISTENER_NAME: Final = Kind(SettingType.STRING, "the name of a listener", _name)
LISTENER_NAMES: Final = Kind(SettingType.LIST, "a list of names of listeners", _names)
QUORUM_SERVERS: Final = Kind(
    SettingType.LIST, "a list of addresses to connect to, each as HOST:PORT, or empty", _addresses
)
QUORUM_VOTERS: Final = Kind(
    SettingType.LIST, "a list of different voters, each as ID@HOST:PORT, or empty", _voters
)


@dataclass(frozen=True, slots=True)
class HttpListener:
    """A listener for HTTP; hosts and ports are as in Listener."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


DEFAULT_ADMIN_LISTENER: Final = HttpListener("127.0.0.1", 9644)
DEFAULT_REGISTRY_LISTENER: Final = HttpListener("127.0.0.1", 8081)
REGISTRY_ENDPOINT: Final = "_SCHEMA_REGISTRY"
"""The name under which a broker registers the address of its schema registry. No listener in a
broker's settings has this name, so no Kafka client gets to see it."""


def _read(text: str) -> HttpListener | None:
    if not text:
        return None
    match = _PLACE.fullmatch(text)
    if match is None or int(match[3]) > PORT_MAX:
        raise ValueError(text)
    return HttpListener(match[1] or match[2] or "", int(match[3]))


HTTP_LISTENER: Final = Kind(SettingType.STRING, "HOST:PORT, or empty", _read)
