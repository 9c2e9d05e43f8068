"""Stories of a schema for clients of other languages: each client is a program that takes orders.

A program reads a JSON object a line and responds with one. Our own client reads the values that the
program writes, and the other way round.
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any, Final

from ottla import RegistryClient, SchemaDeserializer, SchemaSerializer
from ottla.schemas.schema import Schema, SchemaReference, SchemaType

PROGRAM_SECONDS_MAX: Final = 120


class RefusedError(Exception):
    """The client's error for an order."""


class Program:
    """Another client, as a process that takes orders."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.last_error = ""

    def __call__(self, operation: str, **order: Any) -> Any:
        """Give an order, and return its result; RefusedError if the client fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"operation": operation, **order}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            self.last_error = answer["error"]
            raise RefusedError(self.last_error)
        return answer.get("result")


@contextmanager
def running(
    command: Sequence[str | Path], folder: Path, env: Mapping[str, str]
) -> Iterator[Program]:
    """Run a program until the end of the block; it is killed when it takes too long."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=env, stdin=pipe, stdout=pipe, text=True) as one:
        watchdog = Timer(PROGRAM_SECONDS_MAX, one.kill)
        watchdog.start()
        try:
            yield Program(one)
        finally:
            watchdog.cancel()
            one.kill()


AVRO_CITY: Final = (
    '{"type":"record","name":"City","namespace":"p","fields":[{"name":"name","type":"string"}]}'
)
AVRO_ORDER: Final = (
    '{"type":"record","name":"Order","namespace":"p","fields":[{"name":"id","type":"int"},'
    '{"name":"home","type":"p.City"},{"name":"note","type":["null","string"],"default":null}]}'
)
JSON_CITY: Final = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","$id":"city.json","type":"object",'
    '"properties":{"name":{"type":"string"}},"required":["name"]}'
)
JSON_ORDER: Final = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","$id":"order.json","type":"object",'
    '"properties":{"id":{"type":"integer"},"home":{"$ref":"city.json"}},"required":["id"]}'
)
PROTO_CITY: Final = 'syntax = "proto3";\npackage p;\n\nmessage City {\n  string name = 1;\n}\n'
PROTO_ORDER: Final = (
    'syntax = "proto3";\npackage p;\n\nimport "city.proto";\n\n'
    "message Order {\n  int32 id = 1;\n  .p.City home = 2;\n}\n"
)
TEXTS: Final = {
    SchemaType.AVRO: (AVRO_CITY, AVRO_ORDER, "p.City"),
    SchemaType.JSON: (JSON_CITY, JSON_ORDER, "city.json"),
    SchemaType.PROTOBUF: (PROTO_CITY, PROTO_ORDER, "city.proto"),
}
VALUE: Final = {"id": 7, "home": {"name": "Wien"}}
AVRO_VALUE: Final = {**VALUE, "note": None}


def _value(kind: SchemaType) -> dict[str, Any]:
    return AVRO_VALUE if kind is SchemaType.AVRO else VALUE


def kafkajs_exchanges(kind: SchemaType) -> Callable[[Program, str], None]:
    """Return a story: a schema with a reference, registered there, and values both ways."""

    def story(program: Program, url: str) -> None:
        city, order, name = TEXTS[kind]
        subject = f"kafkajs-{kind.value}"
        references = [{"name": name, "subject": f"{subject}-city", "version": 1}]
        first = {"type": kind.value, "schema": city}
        city_id = program("register", subject=f"{subject}-city", schema=first)["id"]
        # A look-up of theirs leaves references out, so it is done with the schema without any.
        assert program("found", subject=f"{subject}-city", schema=first) == city_id
        schema = {"type": kind.value, "schema": order, "references": references}
        schema_id = program("register", subject=f"{subject}-value", schema=schema)["id"]
        assert program("latest", subject=f"{subject}-value") == schema_id
        made = bytes.fromhex(program("encode", id=schema_id, value=_value(kind)))
        with RegistryClient(url=url) as client:
            assert SchemaDeserializer("schema", client).deserialize(subject, made) == _value(kind)
            own = Schema(order, kind, (SchemaReference(name, f"{subject}-city", 1),))
            serializer = SchemaSerializer(own, client)
            payload = serializer.serialize(subject, _value(kind))
        assert payload is not None
        read = program("decode", hex=payload.hex())
        assert read == _value(kind), read

    return story


def franz_reads_and_deletes(kind: SchemaType) -> Callable[[Program, str], None]:
    """Return a story: register with a reference, look up, list users, and delete."""

    def story(program: Program, url: str) -> None:  # noqa: ARG001 - as the others
        city, order, name = TEXTS[kind]
        subject = f"franz-{kind.value}"
        program("register", subject=f"{subject}-city", schema=_schema(kind, city))
        references = [{"name": name, "subject": f"{subject}-city", "version": 1}]
        schema = _schema(kind, order, references)
        made = program("register", subject=subject, schema=schema)
        assert made["version"] == 1
        assert program("found", subject=subject, schema=schema)["id"] == made["id"]
        read = program("by_id", id=made["id"])
        assert (read["schema"], read["references"]) == (made["schema"], references)
        assert program("by_version", subject=subject, version=-1)["id"] == made["id"]
        assert program("subjects_of", id=made["id"]) == [subject]
        assert program("versions_of", id=made["id"]) == [{"subject": subject, "version": 1}]
        (user,) = program("references", subject=f"{subject}-city", version=1)
        assert user["id"] == made["id"]
        _refuses(program, "references exist", "delete", subject=f"{subject}-city")
        program("delete_version", subject=subject, version=1)
        program("delete_version", subject=subject, version=1, hard=True)
        assert program("delete", subject=f"{subject}-city") == [1]
        assert program("delete", subject=f"{subject}-city", hard=True) == [1]
        _refuses(program, "not found", "versions", subject=f"{subject}-city")

    return story


def franz_sets_levels_and_modes(program: Program, _: str) -> None:
    """Set, read and reset a level and a mode; write with an id in the mode IMPORT."""
    assert sorted(program("types")) == ["AVRO", "JSON", "PROTOBUF"]
    old, new = '"int"', '"string"'
    program("register", subject="franz-levels", schema=_schema(SchemaType.AVRO, old))
    changed = {"subject": "franz-levels", "schema": _schema(SchemaType.AVRO, new)}
    assert program("check", version=-1, **changed)["is_compatible"] is False
    _refuses(program, "earlier schema", "register", **changed)
    assert program("set_level", subject="franz-levels", level="NONE") == "NONE"
    assert program("level", subject="franz-levels") == "NONE"
    assert program("register", **changed)["version"] == 2
    program("reset_level", subject="franz-levels")
    assert program("set_mode", subject="franz-import", mode="IMPORT") == "IMPORT"
    schema = _schema(SchemaType.AVRO, '"bytes"')
    program("register_id", subject="franz-import", schema=schema, id=777, version=5)
    assert program("versions", subject="franz-import") == [5]
    program("reset_mode", subject="franz-import")
    assert {"franz-levels", "franz-import"} <= set(program("subjects"))
    assert {one["subject"] for one in program("all")} >= {"franz-levels", "franz-import"}


def franz_frames_messages(program: Program, url: str) -> None:
    """Frame a Protobuf message there and read it here, and the other way round."""
    schema = _schema(SchemaType.PROTOBUF, PROTO_CITY)
    schema_id = program("register", subject="franz-frames-value", schema=schema)["id"]
    bare = bytes([0x0A, 4]) + b"Wien"
    framed = bytes.fromhex(program("encode", id=schema_id, index=[0], hex=bare.hex()))
    with RegistryClient(url=url) as client:
        found = SchemaDeserializer("schema", client).deserialize("franz-frames", framed)
        assert found == {"name": "Wien"}
        own = Schema(PROTO_CITY, SchemaType.PROTOBUF)
        payload = SchemaSerializer(own, client).serialize("franz-frames", {"name": "Wien"})
    assert payload is not None
    read = program("decode", hex=payload.hex())
    assert read == {"id": schema_id, "index": [0], "hex": bare.hex()}


def _schema(
    kind: SchemaType, text: str, references: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    return {"schema": text, "schemaType": kind.value, "references": list(references)}


def _refuses(program: Program, words: str, operation: str, **order: Any) -> None:
    with suppress(RefusedError):
        found = program(operation, **order)
        raise AssertionError(f"{operation} was not refused: {found}")
    assert words in program.last_error, f"{operation}: {program.last_error}"


KAFKAJS: Final[Mapping[str, Callable[[Program, str], None]]] = {
    f"kafkajs:{kind.value.lower()}": kafkajs_exchanges(kind) for kind in TEXTS
}
FRANZ: Final[Mapping[str, Callable[[Program, str], None]]] = {
    **{f"franz:{kind.value.lower()}": franz_reads_and_deletes(kind) for kind in TEXTS},
    "franz:levels-and-modes": franz_sets_levels_and_modes,
    "franz:frames": franz_frames_messages,
}
