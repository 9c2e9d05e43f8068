"""Random payloads through all decoders: each ends in a value or in a ValueError.

python -m tests.properties.payload_soak --payloads 1000000

Payloads are noise, cut or damaged values, and values of other formats. Each goes through the
decoders of Avro, JSON Schema and Protobuf, to Python objects and to columns of Arrow. Memory has to
be flat: after the first tenth the process may grow by no more than GROWTH_BYTES_MAX.
"""

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from ottla.schemas.arrow.arrow_codec import ArrowDecoder
from ottla.schemas.arrow.avro_arrow import AvroArrowDecoder
from ottla.schemas.arrow.json_arrow import JsonArrowDecoder
from ottla.schemas.arrow.protobuf_arrow import ProtobufArrowDecoder
from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.avro.avro_values import AvroReader, AvroWriter
from ottla.schemas.json_schema.json_schema import parse_json_schema
from ottla.schemas.json_schema.json_values import JsonReader
from ottla.schemas.protobuf.protobuf_schema import parse_protobuf
from ottla.schemas.protobuf.protobuf_values import ProtobufReader, dict_of, message_from_dict

GROWTH_BYTES_MAX: Final = 16 << 20
BATCH: Final = 500
"""Payloads in one call of an Arrow decoder."""
NOISE_BYTES_MAX: Final = 120
PAYLOADS: Final = 5_000

AVRO: Final = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "sum", "type": {"type": "fixed", "name": "Sum", "size": 4}},
        {"name": "note", "type": ["null", "string", "double"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "parts", "type": {"type": "map", "values": ["null", "float"]}},
    ],
}
TREE: Final = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "children", "type": {"type": "array", "items": "Tree"}}],
}
JSON: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string", "maxLength": 20},
        "price": {"type": "number", "minimum": 0},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "inner": {"type": "object", "properties": {"a": {"type": "boolean"}}},
        "any": {},
    },
    "required": ["id"],
}
PROTOBUF: Final = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { A = 0; B = 1; }
message Thing {
  int64 id = 1; string name = 2; bytes raw = 3; double price = 4; Kind kind = 5;
  google.protobuf.Timestamp at = 6; google.protobuf.StringValue note = 7;
  repeated sint32 numbers = 8; map<string, Inner> parts = 9; repeated Inner inner = 10;
  oneof one { string text = 11; Inner whole = 12; } optional fixed32 sum = 13;
  message Inner { Thing thing = 1; repeated Kind kinds = 2; }
}
"""
FLAT: Final = """
syntax = "proto3";
message Flat { int32 id = 1; repeated string names = 2; map<int32, bytes> m = 3; }
"""
Read = Callable[[bytes], object]


@dataclass
class Outcome:
    """The counts of a run."""

    payloads: int = 0
    values: int = 0
    errors: int = 0
    growth_bytes: int = 0
    readers: dict[str, Read] = field(default_factory=dict)
    decoders: dict[str, ArrowDecoder] = field(default_factory=dict)


def _avro_readers(outcome: Outcome) -> list[bytes]:
    thing, tree = parse_avro(json.dumps(AVRO)), parse_avro(json.dumps(TREE))
    outcome.readers["avro"] = AvroReader(thing).read
    outcome.readers["avro tree"] = AvroReader(tree).read
    outcome.decoders["avro"] = AvroArrowDecoder(thing, thing)
    number = parse_avro('"long"')
    outcome.decoders["avro long"] = AvroArrowDecoder(number, number)
    value = {
        "id": 7, "name": "Ottla", "raw": b"\0\1", "price": Decimal(12), "day": date(2026, 1, 1),
        "at": datetime(2026, 1, 1, tzinfo=UTC), "key": UUID(int=7), "kind": "B", "sum": b"abcd",
        "note": 1.5, "tags": ["a", "b"], "nulls": [None] * 3, "parts": {"a": None, "b": 2.0},
    }  # fmt: skip
    return [
        AvroWriter(thing).write(value),
        AvroWriter(tree).write({"children": [{"children": []}]}),
    ]


def _json_readers(outcome: Outcome) -> list[bytes]:
    schema = parse_json_schema(json.dumps(JSON))
    outcome.readers["json"] = JsonReader(schema).read
    outcome.decoders["json"] = JsonArrowDecoder(schema)
    value = {
        "id": 7, "name": "Ottla", "price": 1.5e3, "at": "2026-01-01T00:00:00Z", "tags": ["ä", ""],
        "inner": {"a": True}, "any": [{"b": None}], "more": "\U0001f600",
    }  # fmt: skip
    return [json.dumps(value).encode(), json.dumps(value, ensure_ascii=False).encode()]


def _protobuf_readers(outcome: Outcome) -> list[bytes]:
    thing, flat = parse_protobuf(PROTOBUF), parse_protobuf(FLAT)
    reader = ProtobufReader(thing)
    outcome.readers["protobuf"] = lambda payload: dict_of(reader.read(payload), thing)
    outcome.readers["protobuf flat"] = ProtobufReader(flat).read
    outcome.decoders["protobuf"] = ProtobufArrowDecoder(thing, thing)
    outcome.decoders["protobuf flat"] = ProtobufArrowDecoder(flat, flat)
    value = {
        "id": "7", "name": "Ottla", "raw": "AAE=", "price": 1.5, "kind": "B", "note": "soon",
        "at": "2026-01-01T00:00:00Z", "numbers": [1, -2], "parts": {"a": {"kinds": ["A"]}},
        "inner": [{"thing": {"id": "1"}}], "text": "t", "sum": 9,
    }  # fmt: skip
    names = {"id": 7, "names": ["a", "b"], "m": {"1": "AAE="}}
    return [
        message_from_dict(thing, value).SerializeToString(),
        message_from_dict(flat, names).SerializeToString(),
    ]


def payloads(seeds: list[bytes], dice: Random) -> Iterator[bytes]:
    """Yield noise, and values that are cut, damaged or joined."""
    while True:
        seed = bytearray(dice.choice(seeds))
        match dice.randrange(5):
            case 0:
                yield dice.randbytes(dice.randrange(NOISE_BYTES_MAX))
            case 1:
                yield bytes(seed[: dice.randrange(len(seed))])
            case 2:
                for _ in range(dice.randint(1, 4)):
                    seed[dice.randrange(len(seed))] = dice.choice((0, 1, 127, 128, 255, 34, 123))
                yield bytes(seed)
            case 3:
                start = dice.randrange(len(seed))
                seed[start:start] = dice.randbytes(dice.randint(1, 11))
                yield bytes(seed)
            case _:
                yield bytes(seed) + dice.choice(seeds)


def run(count: int, seed: int) -> Outcome:
    """Decode so many payloads; AssertionError with the seed if an outcome is not allowed."""
    dice, outcome = Random(seed), Outcome()
    seeds = [*_avro_readers(outcome), *_json_readers(outcome), *_protobuf_readers(outcome)]
    source = payloads(seeds, dice)
    settled_bytes = 0
    while outcome.payloads < count:
        batch = [next(source) for _ in range(BATCH)]
        for payload in batch:
            _read(outcome, payload, seed)
        _decode(outcome, batch, seed)
        outcome.payloads += len(batch)
        if not settled_bytes and outcome.payloads * 10 >= count:
            settled_bytes = resident_bytes()
    outcome.growth_bytes = resident_bytes() - settled_bytes
    assert outcome.growth_bytes <= GROWTH_BYTES_MAX, (
        f"seed {seed}: {outcome.payloads} payloads left {outcome.growth_bytes} bytes"
    )
    return outcome


def _read(outcome: Outcome, payload: bytes, seed: int) -> None:
    for name, read in outcome.readers.items():
        try:
            read(payload)
            outcome.values += 1
        except ValueError:
            outcome.errors += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {name} of {payload.hex()}: {error!r}") from error


def _decode(outcome: Outcome, batch: list[bytes], seed: int) -> None:
    values = pa.array(batch, pa.binary())
    for name, decoder in outcome.decoders.items():
        found = decoder.decode(values)
        found.batch.validate(full=True)
        assert found.batch.num_rows == len(batch), f"seed {seed}: {name} lost rows"
        outcome.errors += len(found.errors)
        outcome.values += len(batch) - len(found.errors)


def resident_bytes() -> int:
    """Return the memory of this process, without the part that Arrow and C only keep for later."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Run it, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--payloads", type=int, default=PAYLOADS)
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 30))
    asked: Any = parser.parse_args()
    found = run(asked.payloads, asked.seed)
    sys.stdout.write(
        f"{found.payloads} payloads, seed {asked.seed}: {found.values} values,"
        f" {found.errors} errors, {found.growth_bytes / 1e6:+.1f} MB\n"
    )


if __name__ == "__main__":
    main()
