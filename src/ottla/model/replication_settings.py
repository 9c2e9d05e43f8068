"""The broker settings of replication, with Kafka's names and limits."""

from typing import Final

from ottla.model.settings import TEXT, Kind, Setting, UpdateMode, integer, long, optional


def _at_start(name: str, kind: Kind, documentation: str) -> Setting:
    return Setting(name, kind, documentation, UpdateMode.READ_ONLY)


REPLICATION: Final = (
    _at_start(
        "replica.lag.time.max.ms",
        long(1),
        "How long a replica may be without all that its leader has before it is not in sync.",
    ),
    _at_start(
        "replica.fetch.wait.max.ms",
        integer(0),
        "How long a leader lets a follower wait for more; less than replica.lag.time.max.ms.",
    ),
    _at_start(
        "replica.fetch.min.bytes", integer(0), "How many bytes a follower waits for, if it waits."
    ),
    _at_start(
        "replica.fetch.max.bytes",
        integer(0),
        "How many bytes a follower fetches of a partition at once, unless a batch is larger.",
    ),
    _at_start(
        "replica.fetch.response.max.bytes",
        integer(0),
        "How many bytes a follower fetches at once, unless a batch is larger.",
    ),
    _at_start(
        "replica.fetch.backoff.ms",
        integer(0),
        "How long a follower leaves a partition alone whose leader has refused it.",
    ),
    _at_start(
        "replica.socket.timeout.ms",
        integer(1),
        "How long a broker waits for the answer of another, besides what it lets it wait.",
    ),
    _at_start(
        "replica.selector.class",
        optional(TEXT),
        "Who may serve consumers: the leader, or with Kafka's RackAwareReplicaSelector, by its"
        " whole name, the replica in their rack.",
    ),
)
