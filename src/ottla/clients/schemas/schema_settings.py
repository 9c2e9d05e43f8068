"""Settings of clients for values with a schema. Light: every client imports this module."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ottla.clients.config.setting_table import (
    NAME,
    ClientSetting,
    InvalidClientSettingError,
    SettingTable,
    fields_of,
    milliseconds,
    one_word_of,
    some_object,
)
from ottla.clients.schemas.subject_names import (
    STRATEGY_NAMES,
    SubjectName,
    find_strategy,
    topic_name,
)
from ottla.model.settings.settings import FLAG, Kind, SettingType, integer

_PORT_BY_SCHEME: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Server:
    """One URL of a registry. `path` has no slash at its end."""

    scheme: str
    host: str
    port: int
    path: str
    user: str | None = None
    """`name:password`, if the URL has one."""

    def __str__(self) -> str:
        """Show the URL without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_servers(text: str) -> tuple[Server, ...]:
    """Parse URLs, separated by commas; InvalidClientSettingError names the invalid one."""
    servers = tuple(_server(word.strip()) for word in text.split(",") if word.strip())
    if not servers:
        raise InvalidClientSettingError("no URL is given: give http://HOST:PORT")
    return servers


def _server(url: str) -> Server:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidClientSettingError(
            f"{url!r} is not a URL: expected http://HOST:PORT"
        ) from None
    if parts.scheme not in _PORT_BY_SCHEME or not parts.hostname:
        raise InvalidClientSettingError(f"{url!r} is not a URL: expected http://HOST:PORT")
    user = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    port = _PORT_BY_SCHEME[parts.scheme] if port is None else port
    return Server(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), user)


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Addresses and limits of a client."""

    servers: tuple[Server, ...]
    user: str | None = None
    """`name:password` for servers without a user in their URL."""
    timeout_ms: int = 30_000
    """For a whole call, with its retries."""
    attempt_timeout_ms: int = 10_000
    """For one attempt on one server."""
    retries: int = 3
    """How often a call is repeated after all servers have failed."""
    backoff_ms: int = 100
    """The wait before the first repetition; doubled before each further one."""
    latest_ttl_ms: int = 60_000
    """How long the latest version of a subject is cached."""
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None


_URLS: Final = Kind(SettingType.LIST, "a list of http://HOST:PORT", parse_servers)
CONNECTION_SETTINGS: Final = (
    ClientSetting(
        "schema.registry.url",
        _URLS,
        "The servers of the schema registry; the first that answers is used.",
        aliases=("url",),
    ),
    ClientSetting(
        "basic.auth.user.info",
        NAME,
        "The user of the registry as `name:password`, unless the URL has one.",
        aliases=("schema.registry.basic.auth.user.info",),
    ),
    ClientSetting(
        "schema.registry.timeout.ms",
        milliseconds(1),
        "How long a call to the registry may take, with its retries.",
        aliases=("timeout.ms",),
    ),
    ClientSetting(
        "schema.registry.retries",
        integer(0, 20),
        "How often a call is repeated after all servers of the registry have failed.",
        aliases=("max.retries",),
    ),
    ClientSetting(
        "latest.cache.ttl.ms",
        milliseconds(0),
        "How long the latest version of a subject is cached.",
    ),
    ClientSetting(
        "schema.registry.ssl.ca.location",
        NAME,
        "A file with the certificates that sign the registry's; without it the system's.",
        aliases=("ssl.ca.location",),
    ),
    ClientSetting(
        "schema.registry.ssl.certificate.location",
        NAME,
        "The client's certificate for the registry.",
        aliases=("ssl.certificate.location",),
    ),
    ClientSetting(
        "schema.registry.ssl.key.location",
        NAME,
        "The key of that certificate, if it is in another file.",
        aliases=("ssl.key.location",),
    ),
)
"""Settings of the connection to a registry, under Confluent's names where it has some."""
FIELD_BY_NAME: Final = {
    "schema_registry_url": "servers",
    "basic_auth_user_info": "user",
    "schema_registry_timeout_ms": "timeout_ms",
    "schema_registry_retries": "retries",
    "latest_cache_ttl_ms": "latest_ttl_ms",
    "schema_registry_ssl_ca_location": "ca_location",
    "schema_registry_ssl_certificate_location": "certificate_location",
    "schema_registry_ssl_key_location": "key_location",
}
_TABLE: Final = SettingTable("registry client", CONNECTION_SETTINGS, {})


def read_registry_settings(
    given: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> RegistrySettings:
    """Read a client's settings; InvalidClientSettingError lists everything that is wrong."""
    values, _ = _TABLE.read(given, keywords)
    return registry_settings_of(values)


def registry_settings_of(values: Mapping[str, Any]) -> RegistrySettings:
    """Make the settings from values by field; fields of other settings are ignored."""
    if "schema_registry_url" not in values:
        raise InvalidClientSettingError(
            "schema.registry.url is missing: give the registry as http://HOST:PORT"
        )
    named = {
        field: values[name] for name, field in FIELD_BY_NAME.items() if values.get(name) is not None
    }
    return RegistrySettings(**named)


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """How a serializer finds its schema, under Confluent's names."""

    auto_register_schemas: bool = True
    normalize_schemas: bool = False
    use_latest_version: bool = False
    use_latest_with_metadata: Mapping[str, str] | None = None
    use_schema_id: int | None = None
    latest_compatibility_strict: bool = True
    subject_name_strategy: SubjectName = topic_name
    schema_id_serializer: str = "prefix"


def _properties(given: Any) -> Mapping[str, str]:
    if isinstance(given, str):
        pairs = [word.partition("=") for word in given.split(",") if word.strip()]
        given = {name.strip(): value.strip() for name, _, value in pairs}
    if not isinstance(given, Mapping) or not given:
        raise ValueError(given)
    return {str(name): str(value) for name, value in given.items()}


_ID_FORMS: Final = {
    "prefix": "prefix",
    "header": "header",
    "io.confluent.kafka.serializers.schema.id.prefixschemaidserializer": "prefix",
    "io.confluent.kafka.serializers.schema.id.headerschemaidserializer": "header",
}
SCHEMA_SETTINGS: Final = (
    ClientSetting(
        "auto.register.schemas", FLAG, "Whether the schema of the first value is registered."
    ),
    ClientSetting(
        "normalize.schemas",
        FLAG,
        "Whether the registry normalizes schemas before it compares them.",
    ),
    ClientSetting(
        "use.latest.version",
        FLAG,
        "Whether values are written by the subject's latest version; nothing is registered then.",
    ),
    ClientSetting(
        "use.latest.with.metadata",
        some_object("properties as a dict, or as `name=value,name=value`", _properties),
        "Write values by the latest version that has these properties.",
        is_object=True,
    ),
    ClientSetting("use.schema.id", integer(0), "Write values by the schema with this id."),
    ClientSetting(
        "latest.compatibility.strict",
        FLAG,
        "Whether the latest version must be able to read the values' own schema.",
    ),
    ClientSetting(
        "subject.name.strategy",
        some_object(f"a function, or one of {STRATEGY_NAMES}", find_strategy),
        "How the subject is named.",
        is_object=True,
    ),
    ClientSetting(
        "schema.id.serializer",
        one_word_of(_ID_FORMS, "prefix or header"),
        "Whether the schema's id is before the value, or its GUID in a header.",
    ),
)
_SCHEMA_TABLE: Final = SettingTable("schema", SCHEMA_SETTINGS, {})


def _form_of(given: Any) -> Any:
    from ottla.clients.schemas.value_forms import form_of  # noqa: PLC0415 - imports the languages

    form_of(given)
    return given


FORM: Final = Kind(
    SettingType.CLASS,
    'a class with fields, a Schema, a Protobuf message class, or "schema"',
    _form_of,
)


def read_schema_settings(
    given: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> SchemaSettings:
    """Read a serializer's settings; InvalidClientSettingError lists everything that is wrong."""
    values, said = _SCHEMA_TABLE.read(given, keywords)
    return schema_settings_of(values, said)


def schema_settings_of(values: Mapping[str, Any], said: frozenset[str]) -> SchemaSettings:
    """Make the settings from values by field; the name of each given setting is in `said`."""
    chosen = [
        name
        for name in ("use.schema.id", "use.latest.with.metadata", "use.latest.version")
        if values.get(name.replace(".", "_")) not in {None, False}
    ]
    if chosen and values.get("auto_register_schemas") and "auto.register.schemas" in said:
        raise InvalidClientSettingError(
            f"{chosen[0]} and auto.register.schemas exclude each other: leave one out"
        )
    return fields_of(SchemaSettings, values)


FORM_SETTINGS: Final = (
    ClientSetting(
        "key", FORM, "The class or Schema of keys, in place of a serializer.", is_object=True
    ),
    ClientSetting(
        "value", FORM, "The class or Schema of values, in place of a serializer.", is_object=True
    ),
)
REGISTRY_SETTINGS: Final = tuple(replace(row, aliases=()) for row in CONNECTION_SETTINGS)
"""The same for producers and consumers, where the short names belong to the brokers."""
CONSUMER_SCHEMA_SETTINGS: Final = (*FORM_SETTINGS, *REGISTRY_SETTINGS)
PRODUCER_SCHEMA_SETTINGS: Final = (*CONSUMER_SCHEMA_SETTINGS, *SCHEMA_SETTINGS)


@dataclass(frozen=True, slots=True)
class ClientSchemas:
    """The forms of a client's keys and values, the registry, and how schemas are found."""

    key: Any
    value: Any
    registry: RegistrySettings
    settings: SchemaSettings


def client_schemas_of(
    values: Mapping[str, Any], said: frozenset[str], direction: str
) -> ClientSchemas | None:
    """Return a client's schemas and registry, None if no setting names them.

    `direction` is serializer or deserializer. InvalidClientSettingError for a part with both a
    schema and a serializer, or if the registry is missing.
    """
    given = [part for part in ("key", "value") if values.get(part) is not None]
    if not given and "schema_registry_url" not in values:
        return None
    for part in given:
        if f"{part}.{direction}" in said:
            raise InvalidClientSettingError(f"{part} and {part}.{direction}: give only one")
    return ClientSchemas(
        values.get("key"),
        values.get("value"),
        registry_settings_of(values),
        schema_settings_of(values, said),
    )
