"""The broker settings of transactions, with Kafka's names and limits."""

from typing import Final

from ottla.model.settings.settings import FLAG, at_start, integer, short

TRANSACTIONS: Final = (
    at_start(
        "transaction.state.log.num.partitions",
        integer(1),
        "How many partitions the topic of transactions gets; not to be changed afterwards.",
    ),
    at_start(
        "transaction.state.log.replication.factor",
        short(1),
        "How many replicas the topic of transactions gets; a broker without others makes one.",
    ),
    at_start(
        "transaction.state.log.min.isr",
        integer(1),
        "How many replicas must have what the topic of transactions gets; a broker without others"
        " needs none but itself.",
    ),
    at_start(
        "transaction.state.log.segment.bytes",
        integer(1 << 20),
        "How large a segment of the topic of transactions may become.",
    ),
    at_start(
        "transaction.max.timeout.ms",
        integer(1),
        "The longest time that a producer can ask for its transactions.",
    ),
    at_start(
        "transactional.id.expiration.ms",
        integer(1),
        "How long a transactional id is remembered that nobody uses.",
    ),
    at_start(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        integer(1),
        "How often transactions are looked for that take too long, to be aborted.",
    ),
    at_start(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        integer(1),
        "How often transactional ids are looked for that nobody uses, to be forgotten.",
    ),
    at_start(
        "transaction.two.phase.commit.enable",
        FLAG,
        "Whether a producer may prepare transactions that a coordinator elsewhere will end, and"
        " that are never aborted for their age.",
    ),
)
