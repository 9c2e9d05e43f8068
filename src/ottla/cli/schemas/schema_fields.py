"""The fields of a schema as rows, the differences of two schemas, and the lines of fields.

A field has a dotted path: `lines[].price` is a field of the items of `lines`, and `labels{}` has
the values of a map.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.schemas.parsed_schema import ParsedSchema
from ottla.schemas.schema import SchemaType

FIELDS_MAX: Final = 10_000
"""The most fields of a schema that are compared."""
DEPTH_MAX: Final = 20
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that two schemas have not in common, or that differs."""

    change: str
    """added, removed or changed."""
    path: str
    before: str | None
    after: str | None


def changes(before: ParsedSchema, after: ParsedSchema) -> list[FieldChange]:
    """Return the fields that differ, in the order of the new schema, removed fields last."""
    old, new = fields_of(before), fields_of(after)
    found = []
    for path, text in new.items():
        if path not in old:
            found.append(FieldChange("added", path, None, text))
        elif old[path] != text:
            found.append(FieldChange("changed", path, old[path], text))
    removed = [FieldChange("removed", path, old[path], None) for path in old if path not in new]
    return found + removed


def fields_of(schema: ParsedSchema) -> dict[str, str]:
    """Return each field's type, with its default or whether it is required, by the path."""
    walk = _WALK_BY_TYPE[schema.type]
    found: dict[str, str] = {}
    for path, text in walk(schema):
        found.setdefault(path, text)
        if len(found) >= FIELDS_MAX:
            break
    return found


# -- Avro -----------------------------------------------------------------------------------------


def _avro_fields(schema: Any) -> Iterator[tuple[str, str]]:
    from ottla.schemas.avro.avro_types import Array, Map, Record, Union  # noqa: PLC0415

    def inside(found: Any, path: str, open_records: tuple[int, ...]) -> Iterator[tuple[str, str]]:
        match found:
            case Record() if id(found) not in open_records and len(open_records) < DEPTH_MAX:
                for one in found.fields:
                    place = f"{path}.{one.name}" if path else one.name
                    yield place, _avro_field(one)
                    yield from inside(one.type, place, (*open_records, id(found)))
            case Array():
                yield from inside(found.items, f"{path}[]", open_records)
            case Map():
                yield from inside(found.values, f"{path}{{}}", open_records)
            case Union():
                for branch in found.branches:
                    yield from inside(branch, path, open_records)
            case _:
                pass

    if not isinstance(schema.root, Record):
        yield "(value)", avro_type(schema.root)
    yield from inside(schema.root, "", ())


def _avro_field(field: Any) -> str:
    from ottla.schemas.avro.avro_types import NO_DEFAULT  # noqa: PLC0415

    default = "" if field.default is NO_DEFAULT else f" = {json.dumps(field.default)}"
    aliases = f" (was {', '.join(field.aliases)})" if field.aliases else ""
    return f"{avro_type(field.type)}{default}{aliases}"


def avro_type(found: Any) -> str:
    """Return an Avro type in a few words, such as `null | timestamp-micros`."""
    from ottla.schemas.avro import avro_types as avro  # noqa: PLC0415

    if isinstance(found, avro.Primitive | avro.Fixed) and found.logical is not None:
        logical = found.logical
        digits = f"({logical.precision},{logical.scale})" if logical.name == "decimal" else ""
        return f"{logical.name}{digits}"
    match found:
        case avro.Primitive():
            text = str(found.kind)
        case avro.Enum():
            text = f"enum {found.full_name}({', '.join(found.symbols)})"
        case avro.Fixed():
            text = f"fixed {found.full_name}({found.size})"
        case avro.Array():
            text = f"array<{avro_type(found.items)}>"
        case avro.Map():
            text = f"map<{avro_type(found.values)}>"
        case avro.Union():
            text = " | ".join(avro_type(branch) for branch in found.branches)
        case _:
            text = f"record {found.full_name}"
    return text


# -- JSON Schema ----------------------------------------------------------------------------------


def _json_fields(schema: Any) -> Iterator[tuple[str, str]]:
    def inside(
        owner: Any, node: Any, path: str, open_nodes: tuple[int, ...]
    ) -> Iterator[tuple[str, str]]:
        if not isinstance(node, dict) or id(node) in open_nodes or len(open_nodes) > DEPTH_MAX:
            return
        opened = (*open_nodes, id(node))
        target = owner.target_of(node) if "$ref" in node else None
        if target is not None:
            yield from inside(target.owner, target.schema, path, opened)
        required = _names_in(node.get("required"))
        for name, inner in _members(node, "properties"):
            place = f"{path}.{name}" if path else name
            yield place, _json_field(inner, is_required=name in required)
            yield from inside(owner, inner, place, opened)
        yield from inside(owner, node.get("items"), f"{path}[]", opened)
        yield from inside(owner, node.get("additionalProperties"), f"{path}{{}}", opened)
        for keyword in ("allOf", "anyOf", "oneOf"):
            parts = node.get(keyword)
            for part in parts if isinstance(parts, list) else ():
                yield from inside(owner, part, path, opened)

    if not any(True for _ in inside(schema, schema.document, "", ())):
        yield "(value)", json_type(schema.document)
    yield from inside(schema, schema.document, "", ())


def _members(node: Mapping[str, Any], keyword: str) -> list[tuple[str, Any]]:
    found = node.get(keyword)
    return list(found.items()) if isinstance(found, dict) else []


def _names_in(found: Any) -> frozenset[str]:
    return (
        frozenset(one for one in found if isinstance(one, str))
        if isinstance(found, list)
        else (frozenset())
    )


def _json_field(node: Any, *, is_required: bool) -> str:
    default = ""
    if isinstance(node, dict) and "default" in node:
        default = f" = {json.dumps(node['default'])}"
    return f"{json_type(node)}{default}{' (required)' if is_required else ''}"


def json_type(node: Any) -> str:
    """Return the type of a JSON Schema in a few words, such as `string date-time`."""
    if not isinstance(node, dict):
        return "nothing" if node is False else "any"
    if isinstance(node.get("$ref"), str):
        return str(node["$ref"]).rpartition("/")[2] or str(node["$ref"])
    if isinstance(node.get("enum"), list):
        return f"enum({', '.join(json.dumps(one) for one in node['enum'])})"
    if "const" in node:
        return f"const {json.dumps(node['const'])}"
    for keyword in ("anyOf", "oneOf"):
        if isinstance(node.get(keyword), list):
            return " | ".join(json_type(part) for part in node[keyword])
    kinds = node.get("type", "any")
    shown = " | ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)
    if shown == "array" and isinstance(node.get("items"), dict):
        shown = f"array<{json_type(node['items'])}>"
    limits = [
        f"{name}={json.dumps(node[name])}"
        for name in ("minimum", "maximum", "minLength", "maxLength", "pattern")
        if name in node
    ]
    return " ".join([shown, *([str(node["format"])] if "format" in node else []), *limits])


# -- Protobuf -------------------------------------------------------------------------------------


def _protobuf_fields(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield fields by message and number: the name of a field may change."""
    pending = [(message.name, message) for message in reversed(schema.descriptor.message_type)]
    pending += [(f"enum {one.name}", one) for one in reversed(schema.descriptor.enum_type)]
    while pending:
        path, found = pending.pop()
        if path.startswith("enum "):
            for value in found.value:
                yield f"{path[5:]} = {value.number}", value.name
            continue
        oneofs = [one.name for one in found.oneof_decl]
        for field in found.field:
            yield f"{path}.{field.number}", _protobuf_field(field, oneofs)
        pending += [(f"enum {path}.{one.name}", one) for one in reversed(found.enum_type)]
        pending += [
            (f"{path}.{one.name}", one)
            for one in reversed(found.nested_type)
            if not one.options.map_entry
        ]


def _protobuf_field(field: Any, oneofs: list[str]) -> str:
    descriptor = type(field)
    kind = field.type_name.lstrip(".") or descriptor.Type.Name(field.type)[5:].lower()
    label = descriptor.Label.Name(field.label)[6:].lower()
    words = [f"{kind} {field.name}"]
    if label != "optional" or field.proto3_optional:
        words.insert(0, label)
    if field.HasField("oneof_index") and not field.proto3_optional:
        words.append(f"(oneof {oneofs[field.oneof_index]})")
    return " ".join(words)


_WALK_BY_TYPE: Final[Mapping[SchemaType, Callable[[Any], Iterator[tuple[str, str]]]]] = {
    SchemaType.AVRO: _avro_fields,
    SchemaType.JSON: _json_fields,
    SchemaType.PROTOBUF: _protobuf_fields,
}


# -- places in a text -----------------------------------------------------------------------------


def field_at(schema_type: SchemaType, parsed: Any, path: str) -> str:
    """Return the dotted name of the field at a path of an incompatibility; empty for the whole."""
    if schema_type is SchemaType.PROTOBUF:
        return _protobuf_name(parsed, path.removeprefix("#/"))
    document: Any = parsed.document if schema_type is SchemaType.JSON else None
    if document is None:
        document = json.loads(parsed.canonical())
    names, node = [], document
    previous = ""
    for step in path.removeprefix("#").strip("/").split("/"):
        node = _child(node, step)
        if previous == "fields" and isinstance(node, dict):
            names.append(str(node.get("name")))
        elif previous == "properties":
            names.append(step.replace("~1", "/").replace("~0", "~"))
            step = ""  # noqa: PLW2901 - a property may be called `properties`
        previous = step
    return ".".join(names)


def _child(node: Any, step: str) -> Any:
    if isinstance(node, list):
        return node[int(step)] if step.isdigit() and int(step) < len(node) else None
    return node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None


def _protobuf_name(parsed: Any, path: str) -> str:
    names: list[str] = []
    scope = parsed.descriptor.message_type
    message: Any = None
    for step in path.split("/"):
        found = next((one for one in scope if one.name == step), None)
        if found is not None:
            names.append(step)
            message, scope = found, found.nested_type
        elif message is not None and step.isdigit():
            fields = (one.name for one in message.field if one.number == int(step))
            names.append(next(fields, step))
    return ".".join(names)


def line_of(schema_type: SchemaType, text: str, field: str) -> int:
    """Return the line where a text declares a field, or the nearest thing around it."""
    names = [name for name in field.split(".") if name]
    if schema_type is SchemaType.PROTOBUF:
        return _protobuf_line(text, names)
    line_by_field = _json_lines(schema_type, text)
    while names:
        line = line_by_field.get(tuple(names))
        if line is not None:
            return line
        names.pop()
    return 1


def _protobuf_line(text: str, names: list[str]) -> int:
    """Follow the names: a message by its declaration, a field by its name before `=`."""
    position = 0
    for name in names:
        quoted = re.escape(name)
        declared = re.compile(rf"\b(?:message|enum|oneof)\s+{quoted}\b|\b{quoted}\s*=")
        match = declared.search(text, position)
        if match is None:
            break
        position = match.start()
    return text.count("\n", 0, position) + 1


def _json_lines(schema_type: SchemaType, text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each field of a JSON text, by the names that lead to it."""
    is_avro = schema_type is SchemaType.AVRO
    found: dict[tuple[str, ...], int] = {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return found
    for pointer, line in _positions(text):
        names, node, previous = [], document, ""
        steps = pointer[1:].split("/")
        for step in steps:
            node = _child(node, step)
            if is_avro and previous == "fields" and isinstance(node, dict):
                names.append(str(node.get("name")))
            elif not is_avro and previous == "properties":
                names.append(step.replace("~1", "/").replace("~0", "~"))
                step = ""  # noqa: PLW2901 - a property may be called `properties`
            previous = step
        found.setdefault(tuple(names), line)
    return found


def _positions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the JSON pointer of each value inside, and its line; the text is valid JSON."""
    line, is_key, key = 1, False, ""
    path: list[str] = []
    counts: list[int | None] = []
    for word in _TOKEN.findall(text):
        if word == "\n":
            line += 1
        elif word in {"{", "["}:
            if counts:
                yield _pointer(path, counts, key), line
                path.append(_step(counts, key))
            counts.append(0 if word == "[" else None)
            is_key = word == "{"
        elif word in {"}", "]"}:
            counts.pop()
            del path[len(counts) - 1 if counts else 0 :]
        elif word in {",", ":"}:
            number = counts[-1]
            counts[-1] = number if number is None or word == ":" else number + 1
            is_key = word == "," and number is None
        elif is_key:
            key = json.loads(word).replace("~", "~0").replace("/", "~1")
        elif counts:
            yield _pointer(path, counts, key), line


def _step(counts: list[int | None], key: str) -> str:
    return key if counts[-1] is None else str(counts[-1])


def _pointer(path: list[str], counts: list[int | None], key: str) -> str:
    return "/" + "/".join([*path, _step(counts, key)])
