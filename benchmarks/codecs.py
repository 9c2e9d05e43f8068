"""Decompression of a megabyte of records, against the libraries that aiokafka uses.

The records are small JSON documents. Ottla's time includes the limits on the decompressed size.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

from aiokafka import codec as aiokafka_codec

from benchmarks.comparison import GIGABYTES, Case, Peer
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression, compress, decompress

TITLE = "Decompression, beside what aiokafka uses"
NOW_MS = 1_700_000_000_000
RECORDS = 7_000
AIOKAFKA: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.GZIP: aiokafka_codec.gzip_decode,
    Compression.SNAPPY: aiokafka_codec.snappy_decode,
    Compression.LZ4: aiokafka_codec.lz4_decode,
    Compression.ZSTD: aiokafka_codec.zstd_decode,
}


def cases() -> Iterator[Case]:
    """Yield each codec."""
    section = records_section()
    for codec, theirs in AIOKAFKA.items():
        compressed = compress(codec, section)
        assert decompress(codec, compressed) == section == theirs(compressed)
        share = len(compressed) / len(section)
        yield Case(
            work=f"{codec.config_name}, {len(section) / 1e6:.1f} MB from {share:.0%} of it",
            unit=GIGABYTES,
            ours=partial(decompress, codec, compressed),
            amount=len(section),
            peers=(Peer("aiokafka", partial(theirs, compressed)),),
        )


def records_section() -> bytes:
    """Write about a megabyte of records in the format of a batch."""
    builder = BatchBuilder()
    for number in range(RECORDS):
        token = sha256(b"%d" % number).hexdigest()
        order = {
            "order": number,
            "customer": f"customer-{int(token[:3], 16)}",
            "amount": int(token[3:7], 16) / 100,
            "currency": "EUR",
            "token": token[:16],
            "status": "paid" if token[8] < "8" else "open",
        }
        builder.append(NOW_MS + number, token[:8].encode(), json.dumps(order).encode())
    return bytes(RecordBatch(memoryview(builder.build())).records_view)


def text_of(size_bytes: int) -> bytes:
    """Return this much of the orders' text, which compresses as records do."""
    section = records_section()
    return (section * (size_bytes // len(section) + 1))[:size_bytes]
