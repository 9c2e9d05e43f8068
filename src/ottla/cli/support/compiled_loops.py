"""Finds the compiled loops that this installation lacks: without them all works, only slower."""

from importlib import import_module
from typing import Final

LOOPS: Final = (
    "ottla.clients.records._murmur2",
    "ottla.clients.producer.batching._accumulator",
    "ottla.clients.producer.bulk._bulk",
    "ottla.clients.producer.sending._direct_send",
    "ottla.schemas.arrow._avro_decode",
    "ottla.schemas.arrow._avro_encode",
    "ottla.schemas.arrow._json_decode",
    "ottla.schemas.arrow._protobuf_decode",
    "ottla.schemas.arrow._row_encode",
    "ottla.schemas.avro._values",
    "ottla.schemas.classes._objects",
    "ottla.storage.segments._batch_scan",
    "ottla.storage.compaction._compaction",
    "ottla.wire._message_reader",
    "ottla.wire._message_writer",
    "ottla.wire.records._arrow",
    "ottla.wire.records._arrow_rows",
    "ottla.wire.records._reading",
    "ottla.wire.records._writing",
)
"""All but `_crc32c`: the package that replaces it is compiled as well, and processors without the
instruction have no other implementation."""
BROKER_LOOPS: Final = tuple(
    name for name in LOOPS if name.split(".")[1] not in {"clients", "schemas"}
)
"""The loops that a broker can run: it sends no records as a client, and decodes no values."""
REMEDY: Final = (
    "install a C compiler and the headers of Python (Debian: apt install gcc python3-dev), then "
    "pip install --force-reinstall --no-deps --no-binary ottla ottla, or `make` in a checkout"
)


def missing_loops(names: tuple[str, ...] = LOOPS) -> list[str]:
    """Return the loops that cannot be loaded: not compiled, or for another Python or machine."""
    return [name for name in names if not _is_loaded(name)]


def slower_sentence(missing: list[str], count: int) -> str:
    """Return a sentence with the missing loops and their cost."""
    names = ", ".join(name.rpartition(".")[2] for name in missing)
    return (
        f"{len(missing)} of {count} compiled loops are missing ({names}): "
        "Python takes their place, up to 20 times slower"
    )


def _is_loaded(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True
