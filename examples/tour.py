"""A tour of the bytes in five minutes: `python -m examples.tour`."""

from collections.abc import Callable
from functools import partial

from ottla.rpc.frame_reader import FrameReader, new_scratch
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_request, encode_request, encode_response
from ottla.wire.frames import frame_prefix
from ottla.wire.headers import RequestHeader, read_request_header
from ottla.wire.messages import produce
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.arrow import to_arrow
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import records_of

HEADER = RequestHeader(ApiKey.PRODUCE, 9, correlation_id=7, client_id="tour")
NEXT = """
What to try next
  make test     every message of the protocol, held against other implementations
  make bench    how fast this is, beside others that do the same
  docs/         what was measured, and what was decided and why"""


def main() -> None:
    """Follow records from a client's bytes to columns, past a few bytes that are no good."""
    broker_answers(client_writes())
    print("\nA thousand records, in every codec")
    for codec in Compression:
        print(f"  {codec.config_name:8}{len(orders(1000, codec)):8,} bytes")
    records_become_columns()
    bad_bytes_are_refused()
    print(NEXT)


def client_writes() -> bytes:
    """Write three records in a Produce request, as a client would."""
    print("A client writes a Produce request")
    partition = produce.PartitionProduceData(index=0, records=orders(3))
    topic = produce.TopicProduceData(name="orders", partition_data=[partition])
    request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    frame = b"".join(encode_request(HEADER, request))
    print(f"  {len(frame)} bytes: {frame[:20].hex(' ')} ...")
    return frame


def broker_answers(sent: bytes) -> None:
    """Read the request as a broker would, from any network pieces, and write the response."""
    print("\nA broker reads it, and answers")
    frame = received(sent[:50], sent[50:])
    header, position = read_request_header(frame)
    print(f"  {header.client_id} asks for {ApiKey(header.api_key).name} v{header.api_version}")
    request = decode_request(header, frame, position)
    assert isinstance(request, produce.ProduceRequest)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    batch = RecordBatch(partition.records)
    batch.check_crc()
    batch.restamp(base_offset=1000, leader_epoch=5)
    print(f"  {topic.name}-{partition.index} gets {batch}")
    for record in records_of(batch):
        print(f"    {record.offset}  {record.value!r}")
    outcome = produce.PartitionProduceResponse(index=0, base_offset=batch.base_offset)
    answer = produce.TopicProduceResponse(name=topic.name, partition_responses=[outcome])
    response = produce.ProduceResponse(responses=[answer])
    (raw,) = encode_response(ApiKey.PRODUCE, header.api_version, header.correlation_id, response)
    print(f"  {len(raw)} bytes go back: {raw[:20].hex(' ')} ...")


def records_become_columns() -> None:
    """Read a compressed batch into the columns of Spark's Kafka source."""
    print("\nThe zstd batch as Arrow columns")
    rows = to_arrow(orders(1000, Compression.ZSTD), topic="orders", partition=0)
    print(f"  {rows.num_rows:,} rows of {', '.join(rows.schema.names)}")
    for row in rows.slice(0, 3).to_pylist():
        print(f"    {row['offset']}  {row['timestamp']:%H:%M:%S.%f}  {row['value']!r}")


def bad_bytes_are_refused() -> None:
    """Read damaged or hostile bytes: each raises an error with a one-sentence message."""
    print("\nBytes that are no good")
    damaged = orders(1000)
    damaged[500] ^= 1
    show_refusal("one bit flipped", RecordBatch(memoryview(damaged)).check_crc)
    show_refusal("a frame of 2 GB", partial(received, frame_prefix(2**31 - 1)))
    billions = memoryview(bytes(7) + b"\xff\xff\xff\xff\x0f")
    show_refusal("4 billion topics", partial(decode_request, HEADER, billions, 0))


def show_refusal(what: str, work: Callable[[], object]) -> None:
    """Run work that must be refused, and print the error."""
    try:
        work()
        raise AssertionError(f"{what}: nobody noticed")
    except ProtocolError as error:
        print(f"  {what}\n    {error}")


def received(*pieces: bytes) -> memoryview:
    """Reassemble the single frame of these pieces."""
    reader = FrameReader(100 << 20, new_scratch())
    rest = memoryview(b"".join(pieces))
    while (frame := reader.take_frame()) is None:
        room = reader.room()[: len(rest)]
        room[:] = rest[: len(room)]
        reader.received(len(room))
        rest = rest[len(room) :]
    return frame


def orders(count: int, codec: Compression = Compression.NONE) -> bytearray:
    """Make a batch of this many orders."""
    builder = BatchBuilder(compression=codec)
    for number in range(count):
        value = b'{"order": %d, "amount": %d}' % (number, number * 7919 % 10_000)
        builder.append(1_700_000_000_000 + number, b"order-%d" % number, value)
    return builder.build()


if __name__ == "__main__":
    main()
