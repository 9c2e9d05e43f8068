"""Declares messages: classes with fields that give their encoding and their versions.

    class HeartbeatRequest(Message, versions=(0, 4), flexible_since=4):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string(since=3, nullable_since=3, default=None)

One class serves every version. A field is on the wire from version `since` up to, but not
including, `until`; where it is absent, reading gives the default, and writing refuses any other
value unless the field is `ignorable`. `ottla.wire.reading` and `ottla.wire.writing` compile a
class and a version to straight-line code at first use; here nothing is compiled.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Final, TypedDict, TypeVar, Unpack, dataclass_transform

from ottla.model.identifiers import ZERO_UUID

N = TypeVar("N", bound=int)
"""The type of an integer field: int, or a NewType of it."""
Batches = Any
"""Record batches in a message: read as a memoryview, written from anything that has a length."""
EVERY_VERSION: Final = 1 << 15
"""An `until` that no version reaches: versions are sixteen-bit numbers."""


class How(TypedDict, total=False):
    """The options of a field's declaration besides its kind and default."""

    since: int
    until: int
    nullable_since: int
    ignorable: bool
    tag: int
    tagged_since: int


class Field:
    """The encoding of one field. Its name is set when its class is created."""

    __slots__ = (
        "default",
        "ignorable",
        "is_array",
        "kind",
        "name",
        "nullable_since",
        "since",
        "struct",
        "tag",
        "tagged_since",
        "until",
    )

    def __init__(
        self,
        kind: str,
        default: Any,
        how: How,
        struct: "type[Struct] | None" = None,
        *,
        is_array: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.default = default
        self.struct = struct
        self.is_array = is_array
        self.since = how.get("since", 0)
        self.until = how.get("until", EVERY_VERSION)
        self.nullable_since = how.get("nullable_since", EVERY_VERSION)
        self.ignorable = how.get("ignorable", False)
        self.tag = how.get("tag")
        self.tagged_since = how.get("tagged_since", self.since)

    def is_present(self, version: int) -> bool:
        """Whether the field is on the wire in this version, tagged or not."""
        return self.since <= version < self.until

    def is_tagged(self, version: int) -> bool:
        """Whether the field is on the wire as a tagged field in this version."""
        return self.tag is not None and self.is_present(version) and version >= self.tagged_since

    def is_nullable(self, version: int) -> bool:
        """Whether null may stand for the field in this version."""
        return version >= self.nullable_since


def boolean(default: bool = False, **how: Unpack[How]) -> bool:
    """Declare one byte that is 0 or 1."""
    return Field("bool", default, how)  # type: ignore[return-value]


def int8(default: int = 0, **how: Unpack[How]) -> int:
    """Declare a one-byte integer."""
    return Field("int8", default, how)  # type: ignore[return-value]


def int16(default: int = 0, **how: Unpack[How]) -> int:
    """Declare a two-byte integer."""
    return Field("int16", default, how)  # type: ignore[return-value]


def uint16(default: int = 0, **how: Unpack[How]) -> int:
    """Declare a two-byte integer without a sign."""
    return Field("uint16", default, how)  # type: ignore[return-value]


def int32(default: N | int = 0, **how: Unpack[How]) -> N:
    """Declare a four-byte integer."""
    return Field("int32", default, how)  # type: ignore[return-value]


def int64(default: N | int = 0, **how: Unpack[How]) -> N:
    """Declare an eight-byte integer."""
    return Field("int64", default, how)  # type: ignore[return-value]


def float64(default: float = 0.0, **how: Unpack[How]) -> float:
    """Declare an eight-byte floating-point number."""
    return Field("float64", default, how)  # type: ignore[return-value]


def uuid(default: bytes = ZERO_UUID, **how: Unpack[How]) -> bytes:
    """Declare an id, kept as its sixteen bytes."""
    return Field("uuid", default, how)  # type: ignore[return-value]


def string(default: str | None = "", **how: Unpack[How]) -> Any:
    """Declare UTF-8 text."""
    return Field("string", default, how)


def octets(default: bytes | None = b"", **how: Unpack[How]) -> Any:
    """Declare bytes that the protocol does not parse."""
    return Field("bytes", default, how)


def record_batches(**how: Unpack[How]) -> Any:
    """Declare record batches: none at all by default, or null where that is allowed."""
    return Field("records", None if "nullable_since" in how else b"", how)


def struct(item: "type[Struct]", **how: Unpack[How]) -> Any:
    """Declare a nested structure. A tagged or nullable structure is None where it is absent.

    A structure that is both can be present as null; where it is absent it is empty, as in Kafka.
    """
    default = item if ("tag" in how) == ("nullable_since" in how) else None
    return Field("struct", default, how, item)


def array(item: "str | type[Struct]", default: list[Any] | None = [], **how: Unpack[How]) -> Any:  # noqa: B006
    """Declare an array of structures, or of a kind named as above. By default it is empty."""
    if isinstance(item, str):
        return Field(item, default, how, is_array=True)
    return Field("struct", default, how, item, is_array=True)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns the declared fields of a class into slots."""

    fields: "tuple[Field, ...]"
    readers: dict[int, Any]
    writers: dict[int, Any]
    """The compiled code of each version that was used so far."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **how: Any
    ) -> "StructType":
        """Make the class, and leave its constructor to be compiled at first use."""
        fields = []
        for field_name, field in list(namespace.items()):
            if isinstance(field, Field):
                del namespace[field_name]
                field.name = field_name
                fields.append(field)
        namespace["__slots__"] = (*(f.name for f in fields), *namespace.get("__slots__", ()))
        made = super().__new__(cls, name, bases, namespace, **how)
        made.fields = tuple(fields)
        made.readers = {}
        made.writers = {}
        return made

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any
    ) -> None:
        super().__init__(name, bases, namespace)


class _Tagged:
    """The unknown tagged fields of a structure; its constructor does not take them."""

    __slots__ = ("unknown_tags",)

    unknown_tags: dict[int, bytes] | None
    """Tagged fields that this release does not know, kept so that writing preserves them."""


class Struct(_Tagged, metaclass=StructType):
    """A structure on the wire. Its constructor takes every field by keyword."""

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            ours == theirs for ours, theirs in zip(_values(self), _values(other), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in type(self).fields)
        return f"{type(self).__name__}({shown})"


class Message(Struct):
    """The outermost structure: the content of a frame or of a record in an internal topic."""

    versions: ClassVar[tuple[int, int]]
    """The first and the last version."""
    flexible_since: ClassVar[int]
    """The first version with compact lengths and tagged fields."""

    def __init_subclass__(
        cls, *, versions: tuple[int, int], flexible_since: int = EVERY_VERSION
    ) -> None:
        cls.versions = versions
        cls.flexible_since = flexible_since


def _values(value: Struct) -> Iterator[Any]:
    for field in type(value).fields:
        yield getattr(value, field.name)
    yield value.unknown_tags


_UNSET: Final = object()


def _compile_constructor(cls: type[Struct]) -> Any:
    """Write `__init__` with one parameter and one assignment per field."""
    names: dict[str, Any] = {"_UNSET": _UNSET}
    parameters, body = ["self"], ["    self.unknown_tags = None"]
    if cls.fields:
        parameters.append("*")
    for field in cls.fields:
        name = field.name
        fresh = "[]" if isinstance(field.default, list) else f"_d_{name}()"
        if isinstance(field.default, list | type):
            parameters.append(f"{name}=_UNSET")
            body.append(f"    self.{name} = {fresh} if {name} is _UNSET else {name}")
        else:
            parameters.append(f"{name}=_d_{name}")
            body.append(f"    self.{name} = {name}")
        names[f"_d_{name}"] = field.default
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body)
    exec(source, names)  # noqa: S102 - as dataclasses do: the source comes from our declarations alone
    return names["__init__"]
