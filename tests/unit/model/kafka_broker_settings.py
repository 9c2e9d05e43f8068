"""Kafka's declarations of the broker settings that Ottla supports, from its own ConfigDef.

The version is 4.3.1, or 3.9 for the ZooKeeper settings.
"""

from typing import NamedTuple

_TABLE = """
advertised.listeners LIST read-only null
alter.log.dirs.replication.quota.window.num INT read-only 11
alter.log.dirs.replication.quota.window.size.seconds INT read-only 1
auto.create.topics.enable BOOLEAN read-only true
auto.leader.rebalance.enable BOOLEAN read-only true
broker.heartbeat.interval.ms INT read-only 2000
broker.id INT read-only -1
broker.rack STRING read-only null
broker.session.timeout.ms INT read-only 9000
compression.gzip.level INT cluster-wide -1
compression.lz4.level INT cluster-wide 9
compression.type STRING cluster-wide producer
compression.zstd.level INT cluster-wide 3
connections.max.idle.ms LONG read-only 600000
controlled.shutdown.enable BOOLEAN read-only true
controlled.shutdown.max.retries INT read-only 3
controlled.shutdown.retry.backoff.ms LONG read-only 5000
controller.listener.names LIST read-only <none>
controller.quorum.auto.join.enable BOOLEAN read-only false
controller.quorum.bootstrap.servers LIST read-only <none>
controller.quorum.election.backoff.max.ms INT read-only 1000
controller.quorum.election.timeout.ms INT read-only 1000
controller.quorum.fetch.max.bytes INT read-only 1048576
controller.quorum.fetch.snapshot.max.bytes INT read-only 1048576
controller.quorum.fetch.timeout.ms INT read-only 2000
controller.quorum.request.timeout.ms INT read-only 2000
controller.quorum.retry.backoff.ms INT read-only 20
controller.quorum.voters LIST read-only <none>
default.replication.factor INT read-only 1
delete.topic.enable BOOLEAN read-only true
fetch.max.bytes INT read-only 57671680
follower.replication.throttled.rate LONG cluster-wide 9223372036854775807
group.initial.rebalance.delay.ms INT read-only 3000
group.max.session.timeout.ms INT read-only 1800000
group.max.size INT read-only 2147483647
group.min.session.timeout.ms INT read-only 6000
initial.broker.registration.timeout.ms INT read-only 60000
inter.broker.listener.name STRING read-only null
leader.imbalance.check.interval.seconds LONG read-only 300
leader.imbalance.per.broker.percentage INT read-only 10
leader.replication.throttled.rate LONG cluster-wide 9223372036854775807
listener.security.protocol.map STRING per-broker SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners LIST per-broker PLAINTEXT://:9092
log.cleaner.backoff.ms LONG cluster-wide 15000
log.cleaner.dedupe.buffer.size LONG cluster-wide 134217728
log.cleaner.delete.retention.ms LONG cluster-wide 86400000
log.cleaner.enable BOOLEAN read-only true
log.cleaner.io.max.bytes.per.second DOUBLE cluster-wide 1.7976931348623157E308
log.cleaner.max.compaction.lag.ms LONG cluster-wide 9223372036854775807
log.cleaner.min.cleanable.ratio DOUBLE cluster-wide 0.5
log.cleaner.min.compaction.lag.ms LONG cluster-wide 0
log.cleaner.threads INT cluster-wide 1
log.cleanup.policy LIST cluster-wide delete
log.dir LIST read-only /tmp/kafka-logs
log.dirs LIST read-only null
log.flush.interval.messages LONG cluster-wide 9223372036854775807
log.flush.interval.ms LONG cluster-wide null
log.flush.offset.checkpoint.interval.ms INT read-only 60000
log.flush.scheduler.interval.ms LONG read-only 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms INT read-only 60000
log.index.interval.bytes INT cluster-wide 4096
log.index.size.max.bytes INT cluster-wide 10485760
log.message.timestamp.after.max.ms LONG cluster-wide 3600000
log.message.timestamp.before.max.ms LONG cluster-wide 9223372036854775807
log.message.timestamp.type STRING cluster-wide CreateTime
log.preallocate BOOLEAN cluster-wide false
log.retention.bytes LONG cluster-wide -1
log.retention.check.interval.ms LONG read-only 300000
log.retention.hours INT read-only 168
log.retention.minutes INT read-only null
log.retention.ms LONG cluster-wide null
log.roll.hours INT read-only 168
log.roll.jitter.hours INT read-only 0
log.roll.jitter.ms LONG cluster-wide null
log.roll.ms LONG cluster-wide null
log.segment.bytes INT cluster-wide 1073741824
log.segment.delete.delay.ms LONG cluster-wide 60000
max.connections INT cluster-wide 2147483647
max.connections.per.ip INT cluster-wide 2147483647
max.incremental.fetch.session.cache.slots INT read-only 1000
message.max.bytes INT cluster-wide 1048588
metadata.log.dir STRING read-only null
metadata.log.max.record.bytes.between.snapshots LONG read-only 20971520
metadata.log.max.snapshot.interval.ms LONG read-only 3600000
metadata.log.segment.bytes INT read-only 1073741824
metadata.log.segment.ms LONG read-only 604800000
metadata.max.idle.interval.ms INT read-only 500
metadata.max.retention.bytes LONG read-only 104857600
metadata.max.retention.ms LONG read-only 604800000
min.insync.replicas INT cluster-wide 1
node.id INT read-only <none>
num.partitions INT read-only 1
offset.metadata.max.bytes INT read-only 4096
offsets.commit.timeout.ms INT read-only 5000
offsets.retention.check.interval.ms LONG read-only 600000
offsets.retention.minutes INT read-only 10080
offsets.topic.compression.codec INT read-only 0
offsets.topic.num.partitions INT read-only 50
offsets.topic.replication.factor SHORT read-only 3
offsets.topic.segment.bytes INT read-only 104857600
process.roles LIST read-only <none>
producer.id.expiration.check.interval.ms INT read-only 600000
producer.id.expiration.ms INT cluster-wide 86400000
queued.max.request.bytes LONG read-only -1
queued.max.requests INT read-only 500
replica.alter.log.dirs.io.max.bytes.per.second LONG cluster-wide 9223372036854775807
replica.fetch.backoff.ms INT read-only 1000
replica.fetch.max.bytes INT read-only 1048576
replica.fetch.min.bytes INT read-only 1
replica.fetch.response.max.bytes INT read-only 10485760
replica.fetch.wait.max.ms INT read-only 500
replica.high.watermark.checkpoint.interval.ms LONG read-only 5000
replica.lag.time.max.ms LONG read-only 30000
replica.selector.class STRING read-only null
replica.socket.timeout.ms INT read-only 30000
replication.quota.window.num INT read-only 11
replication.quota.window.size.seconds INT read-only 1
socket.listen.backlog.size INT read-only 50
socket.receive.buffer.bytes INT read-only 102400
socket.request.max.bytes INT read-only 104857600
socket.send.buffer.bytes INT read-only 102400
telemetry.max.bytes INT read-only 1048576
transaction.abort.timed.out.transaction.cleanup.interval.ms INT read-only 10000
transaction.max.timeout.ms INT read-only 900000
transaction.partition.verification.enable BOOLEAN cluster-wide true
transaction.remove.expired.transaction.cleanup.interval.ms INT read-only 3600000
transaction.state.log.min.isr INT read-only 2
transaction.state.log.num.partitions INT read-only 50
transaction.state.log.replication.factor SHORT read-only 3
transaction.state.log.segment.bytes INT read-only 104857600
transaction.two.phase.commit.enable BOOLEAN read-only false
transactional.id.expiration.ms INT read-only 604800000
unclean.leader.election.enable BOOLEAN cluster-wide false
zookeeper.connect STRING read-only null
zookeeper.metadata.migration.enable BOOLEAN read-only false
zookeeper.session.timeout.ms INT read-only 18000
"""  # noqa: E501


class KafkaSetting(NamedTuple):
    type: str
    update_mode: str
    default: str


KAFKA_SETTINGS = {
    name: KafkaSetting(*columns)
    for name, *columns in (line.split(" ", 3) for line in _TABLE.strip().splitlines())
}
