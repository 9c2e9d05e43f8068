"""The headers of a dead letter."""

from ottla.clients.consumer.workers.dead_letters import TEXT_BYTES_MAX, error_headers
from ottla.clients.consumer.workers.executors import Failure, Stage
from ottla.wire.records.consumer_record import ConsumerRecord

RECORD = ConsumerRecord("orders", 3, 17, 0, 0, b"k", b"v", (), 0)


def headers_of(error: BaseException, group: str | None = "readers") -> dict[str, bytes]:
    return dict(error_headers(RECORD, Failure(error, Stage.HANDLER), group, "shop.handle"))


def test_the_headers_equal_the_headers_of_kafka_connect() -> None:
    headers = headers_of(KeyError("Ottla"))
    trace = headers.pop("__connect.errors.exception.stacktrace")
    assert b"KeyError: 'Ottla'" in trace
    assert headers == {
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"17",
        "__connect.errors.connector.name": b"readers",
        "__connect.errors.stage": b"TASK_PUT",
        "__connect.errors.class.name": b"shop.handle",
        "__connect.errors.exception.class.name": b"KeyError",
        "__connect.errors.exception.message": b"'Ottla'",
    }


def test_long_messages_are_cut_and_strange_letters_do_no_harm() -> None:
    headers = headers_of(ValueError("\ud800" + "x" * 100_000), group=None)
    assert "__connect.errors.connector.name" not in headers
    assert all(len(value) <= TEXT_BYTES_MAX for value in headers.values())
