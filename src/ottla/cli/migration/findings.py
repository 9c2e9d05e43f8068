"""Findings about a Kafka cluster before Ottla's brokers replace its brokers, from its facts.

An obstacle must be removed before a broker is replaced. A note is a difference that the operator
should know. Each is one sentence with a remedy.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.cli.migration.cluster_facts import ClusterFacts
from ottla.cli.migration.finding import Finding, Subject, merged, note, obstacle
from ottla.cli.migration.node_findings import node_findings
from ottla.machines.controller.features import CLAIMED_LEVELS

_KRAFT_VERSION: Final = "kraft.version"
_FEATURE_BY_GROUP_TYPE: Final = {
    "consumer": "group.version",
    "share": "share.version",
    "streams": "streams.version",
}
_REMEDY_BY_GROUP_TYPE: Final = {
    "consumer": "set group.protocol=classic in its clients",
    "share": "read the topics with a consumer group, and delete the share group",
    "streams": "set group.protocol=classic in the application",
}

Levels = Mapping[str, tuple[int, int]]
"""The first and the last level of features."""


def findings(facts: ClusterFacts, levels: Levels = CLAIMED_LEVELS) -> list[Finding]:
    """Return the findings about a cluster, obstacles first; `levels` are Ottla's feature levels."""
    return merged(_findings(facts, levels))


def _findings(facts: ClusterFacts, levels: Levels) -> Iterator[Finding]:
    if not facts.has_quorum:
        text = "the metadata is in ZooKeeper: migrate the cluster to KRaft first"
        yield obstacle(Subject.CLUSTER, text)
    for node in facts.nodes:
        yield from node_findings(node)
    if facts.unread_nodes:
        text = "the node does not show its settings: look for plug-ins and policies in its file"
        yield note(Subject.NODE, text, facts.unread_nodes)
    yield from _features(facts.level_by_feature, levels)
    yield from _topics(facts)
    yield from _groups(facts)
    yield from _security_records(facts)


def _features(level_by_feature: Mapping[str, int], levels: Levels) -> Iterator[Finding]:
    for name, level in sorted(level_by_feature.items()):
        first, last = levels.get(name, (0, 0))
        if level > last:
            word, wanted = "downgrade", last
        elif level < first:
            word, wanted = "upgrade", first
        else:
            continue
        known = f"supports {first} to {last}" if last else "does not know this feature"
        text = (
            f"{name} is {level}, and Ottla {known}:"
            f" `kafka-features {word} --feature {name}={wanted}` changes it"
        )
        yield obstacle(Subject.CLUSTER, text)
    if level_by_feature.get(_KRAFT_VERSION) == 0:
        text = (
            "kraft.version is 0, so no controller can be added or removed:"
            " `kafka-features upgrade --feature kraft.version=1` changes it"
        )
        yield note(Subject.CLUSTER, text)


def _topics(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.tiered_topics:
        text = (
            "remote.storage.enable is true, and Ottla cannot read tiered records: set it to false"
            " with remote.log.delete.on.disable=true, or copy the topic"
        )
        yield obstacle(Subject.TOPIC, text, facts.tiered_topics)
    if facts.old_format_partitions:
        text = (
            "the first messages have a format before Kafka 0.11, which Ottla does not serve:"
            " delete them by `ottla topic trim`, or copy the topic"
        )
        yield obstacle(Subject.PARTITION, text, facts.old_format_partitions)
    if facts.offline_partitions:
        text = "the partition has no leader to copy from: start its brokers"
        yield obstacle(Subject.PARTITION, text, facts.offline_partitions)


def _groups(facts: ClusterFacts) -> Iterator[Finding]:
    for group_type, remedy in _REMEDY_BY_GROUP_TYPE.items():
        feature = _FEATURE_BY_GROUP_TYPE[group_type]
        if groups := facts.groups_by_type.get(group_type):
            text = f"Ottla does not coordinate {group_type} groups: {remedy}"
            yield obstacle(Subject.GROUP, text, groups)
        elif facts.level_by_feature.get(feature, 0):
            text = (
                f"{feature} permits {group_type} groups, and Ottla does not coordinate them:"
                " start none"
            )
            yield note(Subject.CLUSTER, text)


def _security_records(facts: ClusterFacts) -> Iterator[Finding]:
    """Yield records of the metadata that Ottla keeps and does not enforce."""
    for count, what, remedy in (
        (facts.acl_count, "ACLs", "restrict the network before brokers are replaced"),
        (facts.quota_count, "quotas", "limit these clients by their own settings"),
        (len(facts.scram_users), "SCRAM users", "authenticate clients before they reach Ottla"),
    ):
        if count:
            text = (
                f"Ottla keeps the {what} of the cluster, {count}, without enforcing them: {remedy}"
            )
            yield note(Subject.CLUSTER, text)
