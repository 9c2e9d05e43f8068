"""Error messages about a record that cannot be processed."""

from ottla.clients.consumer.state.partition_progress import PartitionProgress
from ottla.clients.consumer.workers.errors import handler_error, stuck_error
from ottla.clients.consumer.workers.executors import Failure, Stage
from ottla.clients.consumer.workers.lane_scheduler import Work
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord

WORK = Work(ConsumerRecord("orders", 3, 17, 0, 0, None, None, (), 0), PartitionProgress(), None)


class WordlessError(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_it_names_the_record_and_the_reason() -> None:
    error = handler_error(WORK, Failure(KeyError("Ottla"), Stage.VALUE))
    assert (error.partition, error.offset) == (TopicPartition("orders", 3), 17)
    assert str(error) == "orders-3 offset 17: its value cannot be deserialized: KeyError: 'Ottla'"


def test_an_error_that_cannot_be_put_into_words_does_no_harm() -> None:
    error = handler_error(WORK, Failure(WordlessError(), Stage.HANDLER))
    assert str(error) == "orders-3 offset 17: the handler failed: WordlessError: (without words)"


def test_what_hangs_is_named_with_its_time() -> None:
    error = stuck_error([WORK], now=2.5)
    assert str(error) == "handlers have not ended: orders-3 offset 17 (for 2.5 s)"
    assert error.records == ((TopicPartition("orders", 3), 17),)
