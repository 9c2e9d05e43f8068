"""The common parts of comparisons with other implementations.

A message of Ottla's and the oracle's version are compared as plain values: dictionaries by Kafka's
field names, lists, numbers, text and bytes. Swapped fields are found that way, even where the bytes
are equal.
"""

from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from ottla.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.headers import RequestHeader, ResponseHeader
from ottla.wire.reading import decode
from ottla.wire.schema import Field, Message, Struct
from ottla.wire.writing import encode
from tests.examples import examples
from tests.message_strategies import all_versions, values_of

Plain = dict[str, Any]
Case = tuple[type[Message], int]

# A wrong declaration fails many cases at once: making each example small would take minutes.
FEW = settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
MANY = settings(max_examples=examples(50), deadline=None)
CONSUMER_PROTOCOL: Final[list[Case]] = [
    (cls, version)
    for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
    for version in range(cls.versions[0], cls.versions[1] + 1)
]

_INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
_INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
REQUEST_HEADERS = st.builds(
    RequestHeader,
    api_key=_INT16,
    api_version=_INT16,
    correlation_id=_INT32,
    client_id=st.none() | st.text(),
    tags=st.none(),
)
RESPONSE_HEADERS = st.builds(ResponseHeader, correlation_id=_INT32, tags=st.none())


class Oracle(Protocol):
    """Another implementation of the protocol."""

    @property
    def fills_in_structs(self) -> bool:
        """Whether it reads a tagged structure that was not sent as defaults, and not as None."""

    def knows(self, cls: type[Message], version: int) -> bool:
        """Return whether it has this version of a message."""

    def allowed(self, cls: type[Message], field: Field) -> Sequence[Any] | None:
        """Return the values that it can hold in a field, or None if that is all of them."""

    def nullable_fields(self, cls: type[Message], version: int) -> set[str]:
        """Return the paths of fields for which null may stand."""

    def read(self, cls: type[Message], version: int, raw: bytes) -> tuple[Plain, bytes]:
        """Read a message; return its fields, and the bytes that the oracle writes for it."""


def versions_known_to(oracle: Oracle, cls: type[Message]) -> list[int]:
    """Return the versions of a message that Ottla and another implementation both have."""
    first, last = cls.versions
    return [version for version in range(first, last + 1) if oracle.knows(cls, version)]


def cases_known_to(oracle: Oracle) -> list[Case]:
    """Return the versions of all messages that Ottla and another implementation both have."""
    return [case for case in all_versions() + CONSUMER_PROTOCOL if oracle.knows(*case)]


def messages_known_to(oracle: Oracle) -> list[type[Message]]:
    """Return the messages that Ottla and another implementation both have in some version."""
    return list(dict.fromkeys(cls for cls, _ in cases_known_to(oracle)))


def nullable_fields(cls: type[Struct], version: int, path: str = "") -> set[str]:
    """Return the paths of fields for which Ottla takes null."""
    found = set()
    for field in cls.fields:
        if not field.is_present(version):
            continue
        here = f"{path}.{field.name}"
        if field.is_nullable(version):
            found.add(here)
        if field.struct is not None:
            found |= nullable_fields(field.struct, version, here)
    return found


class Reading(NamedTuple):
    """A message as one side sees it."""

    said: Plain
    written: bytes
    read_by_ottla: Message


def both_readings(oracle: Oracle, value: Message, version: int) -> tuple[Reading, Reading]:
    """Return the oracle's reading of Ottla's bytes, and Ottla's of the oracle's; both equal."""
    raw = encode(value, version)
    said, written = oracle.read(type(value), version, raw)
    theirs = Reading(said, written, decode(type(value), version, memoryview(written)))
    ours = plain(value, version, fill_in_structs=oracle.fills_in_structs)
    return theirs, Reading(ours, raw, value)


def plain_request_header(header: RequestHeader) -> Plain:
    """Return the fields of a header, by Kafka's names."""
    return {
        "request_api_key": header.api_key,
        "request_api_version": header.api_version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
    }


def plain(value: Struct, version: int, *, fill_in_structs: bool = False) -> Plain:
    """Return the fields of a message in this version."""

    def plain_item(item: Any) -> Any:
        if isinstance(item, list):
            return [plain_item(each) for each in item]
        if isinstance(item, Struct):
            return plain(item, version, fill_in_structs=fill_in_structs)
        return item

    said = {}
    for field in type(value).fields:
        item = getattr(value, field.name)
        if fill_in_structs and item is None and field.struct and field.is_tagged(version):
            item = field.struct()
        if field.is_present(version):
            said[field.name] = plain_item(item)
    return said


@cache
def values_for(oracle: Oracle, cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Return any value that a version carries and that another implementation can hold."""

    def narrowed(field: Field) -> st.SearchStrategy[Any] | None:
        allowed = oracle.allowed(cls, field)
        if allowed is not None:
            return st.sampled_from(allowed)
        if field.struct is not None and field.is_tagged(version) and not field.is_array:
            # Ottla sends a tagged structure of nothing but defaults, others leave it out.
            default = field.struct()
            return values_of(field.struct, version, narrowed).filter(lambda v: v != default)
        return None

    return values_of(cls, version, narrowed)


def full_value(oracle: Oracle, cls: type[Message], version: int) -> Any:
    """Return a value with nothing left out, in which hardly two fields are alike."""
    numbers = count(1)

    def filled(struct: type[Struct]) -> Struct:
        present = [f for f in struct.fields if f.is_present(version)]
        return struct(**{f.name: [item(f), item(f)] if f.is_array else item(f) for f in present})

    def item(field: Field) -> Any:
        if field.struct is not None:
            return filled(field.struct)
        number = next(numbers)
        allowed = oracle.allowed(cls, field)
        return _leaf(field.kind, number) if allowed is None else allowed[number % len(allowed)]

    return filled(cls)


def value_of_defaults(cls: type[Struct], version: int) -> Any:
    """Return a value with one of every structure, all of defaults, and no tagged field sent."""
    value = cls()
    for field in cls.fields:
        if field.struct and field.is_present(version) and not field.is_tagged(version):
            nested = value_of_defaults(field.struct, version)
            setattr(value, field.name, [nested] if field.is_array else nested)
    return value


def _leaf(kind: str, number: int) -> Any:
    if kind in {"string", "bytes", "records", "uuid"}:
        text = f"number {number:09}"
        return text if kind == "string" else text.encode()
    if kind == "bool":
        return number % 2 == 0
    return number % 128 if kind == "int8" else number
