"""Records and fields of a schema by their paths: their tags, and the names of top-level fields.

Paths are Confluent's: `namespace.Record.field` in Avro, `Message.Inner.field` in Protobuf, and
`object.field.array.object.inner` in JSON Schema, where each schema on the way adds its kind.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.schemas.schema import SchemaType

if TYPE_CHECKING:
    from ottla.schemas.avro.avro_types import AvroType

_TAGS: Final = "confluent:tags"
_LISTED: Final = ("allOf", "anyOf", "oneOf")


class Entity(NamedTuple):
    """A record or a field that has tags."""

    path: str
    is_field: bool
    tags: tuple[str, ...]


def tagged_entities(parsed: Any) -> list[Entity]:
    """Return the records and fields with tags of their own, in the order of the text."""
    found = _WALKS[parsed.type](parsed)
    return [entity for entity in found if entity.tags]


def top_level_fields(parsed: Any) -> list[str]:
    """Return the names of the fields of the record, the object, or the first message."""
    match parsed.type:
        case SchemaType.AVRO:
            return [field.name for field in getattr(parsed.root, "fields", ())]
        case SchemaType.JSON:
            document = parsed.document
            properties = document.get("properties") if isinstance(document, dict) else None
            return list(properties) if isinstance(properties, dict) else []
        case _:
            messages = parsed.descriptor.message_type
            return [field.name for field in messages[0].field] if messages else []


def _tags_of(properties: Mapping[str, Any]) -> tuple[str, ...]:
    tags = properties.get(_TAGS)
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def _avro(parsed: Any) -> Iterator[Entity]:
    from ottla.schemas.avro.avro_types import Array, Map, Record, Union  # noqa: PLC0415

    seen: set[int] = set()
    pending: list[AvroType] = [parsed.root]
    while pending:
        one = pending.pop()
        match one:
            case Array():
                pending.append(one.items)
            case Map():
                pending.append(one.values)
            case Union():
                pending += reversed(one.branches)
            case Record() if id(one) not in seen:
                seen.add(id(one))
                yield Entity(one.full_name, False, _tags_of(one.properties))
                for field in one.fields:
                    path = f"{one.full_name}.{field.name}"
                    yield Entity(path, True, _tags_of(field.properties))
                pending += [field.type for field in reversed(one.fields)]


def _json(parsed: Any) -> Iterator[Entity]:
    pending: list[tuple[str, Any, bool]] = [("", parsed.document, False)]
    while pending:
        path, node, is_field = pending.pop()
        if not isinstance(node, dict):
            continue
        if is_field:
            yield Entity(path, True, _tags_of(node))
        properties = node.get("properties")
        inner: list[tuple[str, Any, bool]] = []
        if isinstance(properties, dict):
            scope = _inside(path, "object")
            if not is_field:
                yield Entity(scope, False, _tags_of(node))
            inner += [(f"{scope}.{name}", one, True) for name, one in properties.items()]
        inner += _parts(path, node)
        pending += reversed(inner)


def _parts(path: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    items = node.get("items")
    if isinstance(items, dict):
        yield _inside(path, "array"), items, False
    for keyword in _LISTED:
        branches = node.get(keyword)
        for index, branch in enumerate(branches if isinstance(branches, list) else ()):
            yield _inside(path, f"{keyword.lower()}.{index}"), branch, False
    if "not" in node:
        yield _inside(path, "not"), node["not"], False


def _inside(path: str, kind: str) -> str:
    return f"{path}.{kind}" if path else kind


def _protobuf(parsed: Any) -> Iterator[Entity]:
    from ottla.schemas.protobuf.proto_names import messages_of  # noqa: PLC0415

    pool = parsed.pool_with_options
    prefix = f"{parsed.descriptor.package}." if parsed.descriptor.package else ""
    for full_name, message in messages_of(parsed.descriptor):
        path = full_name.removeprefix(prefix)
        yield Entity(path, False, _meta_tags(message.options, "confluent.message_meta", pool))
        for field in message.field:
            tags = _meta_tags(field.options, "confluent.field_meta", pool)
            yield Entity(f"{path}.{field.name}", True, tags)


def _meta_tags(options: Any, name: str, pool: Any) -> tuple[str, ...]:
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    try:
        extension = pool.FindExtensionByName(name)
    except KeyError:
        return ()
    # The classes of the global pool do not know the extension.
    known = GetMessageClass(extension.containing_type)()
    known.ParseFromString(options.SerializeToString())
    return tuple(known.Extensions[extension].tags)


_WALKS: Final = {
    SchemaType.AVRO: _avro,
    SchemaType.JSON: _json,
    SchemaType.PROTOBUF: _protobuf,
}
