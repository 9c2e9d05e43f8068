"""Settings that all clients share: the address of the cluster, and timeouts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.clients.config.setting_table import (
    ClientSetting,
    InvalidClientSettingError,
    SettingTable,
    fields_of,
    milliseconds,
    one_word_of,
    raise_problems,
)
from ottla.model.address import Address
from ottla.model.settings.settings import INT32_MAX, TEXT, Kind, SettingType

DEFAULT_PORT: Final = 9092
DEFAULT_CLIENT_ID: Final = "ottla"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The address of the cluster, and the timeouts."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = DEFAULT_CLIENT_ID
    connect_timeout_ms: int = 10_000
    """For connecting and agreeing on API versions."""
    request_timeout_ms: int = 30_000
    """For the response to one request."""
    timeout_ms: int = 60_000
    """For a whole call, including its retries."""
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse `host:port,host:port`; the default port is 9092."""
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


_INT32_MS: Final = milliseconds(0, INT32_MAX)
CLIENT_SETTINGS: Final = (
    ClientSetting(
        "bootstrap.servers",
        Kind(SettingType.LIST, "a list of HOST:PORT", parse_addresses),
        "Brokers to find the cluster by; one suffices, of several the first that answers counts.",
        aliases=("metadata.broker.list", "brokers"),
    ),
    ClientSetting(
        "client.id", TEXT, "The name of this client in the brokers' logs, metrics and quotas."
    ),
    ClientSetting("request.timeout.ms", _INT32_MS, "How long the answer to one request may take."),
    ClientSetting(
        "default.api.timeout.ms",
        _INT32_MS,
        "How long a call may take, with everything that is tried again in it.",
        field="timeout_ms",
    ),
    ClientSetting(
        "socket.connection.setup.timeout.ms",
        milliseconds(),
        "How long it may take until a connection can be used.",
        field="connect_timeout_ms",
    ),
    ClientSetting(
        "retry.backoff.ms",
        milliseconds(),
        "How long to wait before something is tried again; doubled at every further try.",
    ),
    ClientSetting("retry.backoff.max.ms", milliseconds(), "How long that wait can become."),
    ClientSetting(
        "reconnect.backoff.ms",
        milliseconds(),
        "How long a broker is left alone that could not be reached; doubled at every further try.",
    ),
    ClientSetting("reconnect.backoff.max.ms", milliseconds(), "How long that wait can become."),
    ClientSetting(
        "connections.max.idle.ms",
        milliseconds(-1),
        "After how long an idle connection is closed; -1 is never.",
    ),
    ClientSetting(
        "metadata.max.age.ms",
        milliseconds(),
        "How old knowledge of topics and leaders may become before it is asked for again.",
        aliases=("topic.metadata.refresh.interval.ms",),
    ),
    ClientSetting(
        "metadata.recovery.strategy",
        one_word_of({"rebootstrap": "rebootstrap", "none": "none"}),
        "If none of the known brokers can be reached: begin again with "
        "bootstrap.servers, or go on trying.",
    ),
    ClientSetting(
        "metadata.recovery.rebootstrap.trigger.ms",
        milliseconds(),
        "After how long without metadata a client begins again with bootstrap.servers.",
    ),
    ClientSetting(
        "security.protocol",
        one_word_of({"plaintext": "PLAINTEXT"}, "PLAINTEXT: TLS and SASL are not supported yet"),
        "How connections are protected; not at all, so far.",
        field="security_protocol",
    ),
)

_KERNELS: Final = "is not needed: the kernel sizes the buffers of a socket by itself"
_METRICS: Final = "has no meaning here: metrics() returns plain numbers, for any reporter"
WITHOUT_MEANING: Final = {
    "send.buffer.bytes": _KERNELS,
    "receive.buffer.bytes": _KERNELS,
    "socket.send.buffer.bytes": _KERNELS,
    "socket.receive.buffer.bytes": _KERNELS,
    "client.dns.lookup": "is not needed: all addresses of a name are tried, in their order",
    "socket.connection.setup.timeout.max.ms": (
        "is not supported: socket.connection.setup.timeout.ms is the limit of every try"
    ),
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "statistics.interval.ms": _METRICS,
    "enable.metrics.push": "is not supported: this client pushes no metrics to brokers",
    "config.providers": "is for Java: read secrets where you make the dict",
    "api.version.request": "is not needed: versions are always agreed on",
    "broker.version.fallback": "is not needed: versions are always agreed on",
    "broker.address.family": "is not needed: all addresses of a name are tried, in their order",
    "socket.keepalive.enable": "is not needed: a silent broker is noticed by request.timeout.ms",
    "socket.nagle.disable": "is not needed: it is never on",
    "log_level": "is not supported: use Python's logging, the logger is called ottla",
    "log.level": "is not supported: use Python's logging, the logger is called ottla",
    "debug": "is not supported: use Python's logging, the logger is called ottla",
}
"""Settings of other clients, each with the end of a sentence about it."""
_TABLE: Final = SettingTable("client", CLIENT_SETTINGS, WITHOUT_MEANING)


def read_client_settings(
    given: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> ClientSettings:
    """Parse the settings of a client without settings of its own, such as Admin."""
    values, _ = _TABLE.read(given, keywords)
    raise_problems(client_problems(values))
    return client_settings_of(values)


def client_settings_of(values: Mapping[str, Any]) -> ClientSettings:
    """Take the common client settings from values by field."""
    return _with_room_for_backoff(fields_of(ClientSettings, values))


def _with_room_for_backoff(settings: ClientSettings) -> ClientSettings:
    """Raise the maximum backoff to the initial one if it is smaller."""
    return replace(
        settings,
        retry_backoff_max_ms=max(settings.retry_backoff_ms, settings.retry_backoff_max_ms),
        reconnect_backoff_max_ms=max(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        ),
    )


def client_problems(values: Mapping[str, Any]) -> list[str]:
    """Return the missing and contradictory settings in values by field."""
    problems = []
    if "bootstrap_servers" not in values:
        problems.append("bootstrap.servers is missing: say where the cluster is, as HOST:PORT")
    for name in ("retry_backoff", "reconnect_backoff"):
        least, most = values.get(f"{name}_ms"), values.get(f"{name}_max_ms")
        if least is not None and most is not None and most < least:
            dotted = name.replace("_", ".")
            problems.append(f"{dotted}.max.ms is {most}, less than {dotted}.ms, which is {least}")
    return problems


def parse_settings(values: Mapping[str, str], default_brokers: str) -> ClientSettings:
    """Parse the settings of a command; InvalidClientSettingError names the invalid one."""
    is_said = any(_TABLE.find(name) is CLIENT_SETTINGS[0] for name in values)
    return read_client_settings(values, {} if is_said else {"bootstrap.servers": default_brokers})
