"""The broker settings of replication, with Kafka's names and limits."""

from typing import Final

from ottla.model.settings.settings import FLAG, TEXT, Setting, at_start, integer, long, optional

REPLICATION: Final = (
    at_start(
        "replica.lag.time.max.ms",
        long(1),
        "How long a replica may be without all that its leader has before it is not in sync.",
    ),
    at_start(
        "replica.fetch.wait.max.ms",
        integer(0),
        "How long a leader lets a follower wait for more; less than replica.lag.time.max.ms.",
    ),
    at_start(
        "replica.fetch.min.bytes", integer(0), "How many bytes a follower waits for, if it waits."
    ),
    at_start(
        "replica.fetch.max.bytes",
        integer(0),
        "How many bytes a follower fetches of a partition at once, unless a batch is larger.",
    ),
    at_start(
        "replica.fetch.response.max.bytes",
        integer(0),
        "How many bytes a follower fetches at once, unless a batch is larger.",
    ),
    at_start(
        "replica.fetch.backoff.ms",
        integer(0),
        "How long a follower leaves a partition alone at most whose leader has refused it; it"
        " begins with 20 ms and doubles.",
    ),
    at_start(
        "replica.socket.timeout.ms",
        integer(1),
        "How long a broker waits for the answer of another, besides what it lets it wait.",
    ),
    at_start(
        "replica.selector.class",
        optional(TEXT),
        "Who may serve consumers: the leader, or with Kafka's RackAwareReplicaSelector, by its"
        " whole name, the replica in their rack.",
    ),
    at_start(
        "auto.leader.rebalance.enable",
        FLAG,
        "Whether the controller lets preferred replicas lead again by itself.",
    ),
    at_start(
        "leader.imbalance.check.interval.seconds",
        long(1),
        "How often the controller looks whether preferred replicas lead.",
    ),
    at_start(
        "leader.imbalance.per.broker.percentage",
        integer(0),
        "How many percent of what a broker should lead others may lead before it leads again.",
    ),
    at_start(
        "controlled.shutdown.enable",
        FLAG,
        "Whether a broker that stops lets others lead before it goes.",
    ),
    at_start(
        "controlled.shutdown.max.retries",
        integer(0),
        "How often controlled.shutdown.retry.backoff.ms may pass before a broker stops though it"
        " still leads.",
    ),
    at_start(
        "controlled.shutdown.retry.backoff.ms",
        long(0),
        "How long each try takes to have others lead; the controller is asked all the time.",
    ),
    Setting(
        "leader.replication.throttled.rate",
        long(0),
        "How many bytes a second this broker sends of leader.replication.throttled.replicas.",
    ),
    Setting(
        "follower.replication.throttled.rate",
        long(0),
        "How many bytes a second this broker fetches of follower.replication.throttled.replicas.",
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        long(0),
        "How many bytes a second are copied of replicas that move between folders.",
    ),
    at_start(
        "replication.quota.window.num",
        integer(1),
        "How many windows the rates of replication are taken over.",
    ),
    at_start(
        "replication.quota.window.size.seconds",
        integer(1),
        "How long each of these windows is.",
    ),
    at_start(
        "alter.log.dirs.replication.quota.window.num",
        integer(1),
        "How many windows the rate of moves between folders is taken over.",
    ),
    at_start(
        "alter.log.dirs.replication.quota.window.size.seconds",
        integer(1),
        "How long each of these windows is.",
    ),
)
