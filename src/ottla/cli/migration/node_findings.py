"""Findings about one broker or controller, decided from its settings and its release."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.broker.data.preferred_replicas import RACK_AWARE
from ottla.cli.migration.cluster_facts import NodeFacts
from ottla.cli.migration.finding import Finding, Severity, Subject, note, obstacle
from ottla.model.settings.broker_config import SERVED_PROTOCOLS
from ottla.model.settings.kafka_settings import GUARDING_SETTINGS
from ottla.model.settings.listeners import SecurityProtocol
from ottla.model.settings.settings import split_list

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER: Final = "authorizer.class.name"
MECHANISMS: Final = "sasl.enabled.mechanisms"
KERBEROS: Final = "GSSAPI"
TESTED_RELEASE: Final = "Kafka 4.3"
TESTED_METADATA_VERSION: Final = 30
"""The metadata.version of TESTED_RELEASE."""
_MECHANISMS_WITHOUT_PLUG_IN: Final = frozenset(
    {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}
)
_PROTOCOLS: Final = frozenset(protocol.value for protocol in SecurityProtocol)
_TOKEN_KEYS: Final = ("delegation.token.secret.key", "delegation.token.master.key")
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.(?:[^.]+\.(?=sasl\.))?")
"""A setting of one listener, and of one SASL mechanism there."""


class _PlugIn(NamedTuple):
    """A setting that names Java classes: the classes without an effect, and the remedy."""

    remedy: str
    harmless: frozenset[str] = frozenset()
    severity: Severity = Severity.OBSTACLE


_POLICY = _PlugIn("remove the policy, and check requests before they are sent")
_LOGIN = _PlugIn("let clients authenticate by a mechanism that Kafka itself implements")
_REPORTER = _PlugIn(
    "read an Ottla broker's metrics from its HTTP endpoint",
    frozenset({"org.apache.kafka.common.metrics.JmxReporter"}),
    Severity.NOTE,
)
_PLUG_INS: Final[Mapping[str, _PlugIn]] = {
    AUTHORIZER: _PlugIn(
        f"move its rules to {STANDARD_AUTHORIZER}", frozenset({STANDARD_AUTHORIZER})
    ),
    "create.topic.policy.class.name": _POLICY,
    "alter.config.policy.class.name": _POLICY,
    "client.quota.callback.class": _PlugIn("replace it by quotas of users and client ids"),
    "principal.builder.class": _PlugIn(
        "return to the default, and adapt the rules to its principals",
        frozenset({"org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"}),
    ),
    "replica.selector.class": _PlugIn(
        f"use {RACK_AWARE}, or none",
        frozenset({RACK_AWARE, "org.apache.kafka.common.replica.LeaderSelector"}),
    ),
    "group.consumer.assignors": _PlugIn(
        "use uniform or range",
        frozenset(
            {
                "uniform",
                "range",
                "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
                "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
            }
        ),
    ),
    "sasl.server.callback.handler.class": _LOGIN,
    "sasl.login.class": _LOGIN,
    "sasl.login.callback.handler.class": _LOGIN,
    "security.providers": _LOGIN,
    "ssl.engine.factory.class": _PlugIn("name certificates in ssl.keystore.* instead"),
    "metric.reporters": _REPORTER,
    "kafka.metrics.reporters": _REPORTER,
}


def node_findings(node: NodeFacts) -> Iterator[Finding]:
    """Yield the findings about one node."""
    yield from _plug_ins(node)
    yield from _guards(node)
    yield from _listeners(node)
    yield from _release(node)
    yield from _other_settings(node)


def _plug_ins(node: NodeFacts) -> Iterator[Finding]:
    for name, value in node.settings.items():
        plug_in = _PLUG_INS.get(_LISTENER_PREFIX.sub("", name, count=1))
        if plug_in is None:
            continue
        strange = [word for word in split_list(value) if word not in plug_in.harmless]
        if strange:
            text = f"{name} is {','.join(strange)}, and Ottla loads no Java class: {plug_in.remedy}"
            yield Finding(plug_in.severity, Subject.NODE, text, (str(node.node_id),))


def _guards(node: NodeFacts) -> Iterator[Finding]:
    """Yield protections that Ottla has not: a broker of Ottla refuses to start with them."""
    name = node.node_id
    reason = GUARDING_SETTINGS.get(AUTHORIZER)
    if reason is not None and node.settings.get(AUTHORIZER) == STANDARD_AUTHORIZER:
        text = f"{AUTHORIZER} is set, and {reason}: remove it, or keep this cluster's brokers"
        yield obstacle(Subject.NODE, text, [name])
    if node.settings.get("config.providers"):
        text = "config.providers is set: write the values themselves into the settings of Ottla"
        yield note(Subject.NODE, text, [name])
    if any(key in node.settings for key in _TOKEN_KEYS):
        text = (
            "delegation tokens are enabled, and Ottla knows none: let clients authenticate by"
            f" another mechanism, then remove {_TOKEN_KEYS[0]}"
        )
        yield obstacle(Subject.NODE, text, [name])


def _listeners(node: NodeFacts) -> Iterator[Finding]:
    served = " or ".join(sorted(SERVED_PROTOCOLS))
    for listener, protocol in _protocol_by_listener(node.settings).items():
        if protocol not in SERVED_PROTOCOLS:
            text = (
                f"listener {listener} speaks {protocol}, which Ottla does not speak yet:"
                f" replace it by a {served} listener on a private network"
            )
            yield obstacle(Subject.NODE, text, [node.node_id])
        if protocol.startswith("SASL"):
            for mechanism in _strange_mechanisms(node.settings, listener):
                kind = "Kerberos" if mechanism == KERBEROS else "which is a plug-in's"
                text = (
                    f"listener {listener} has the SASL mechanism {mechanism}, {kind}, and Ottla"
                    " cannot do it: move its clients to SCRAM-SHA-512"
                )
                yield obstacle(Subject.NODE, text, [node.node_id])


def _protocol_by_listener(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the protocol of each open listener, as Kafka finds it."""
    mapped = {
        name.upper(): protocol.upper()
        for name, _, protocol in (
            word.partition(":")
            for word in split_list(settings.get("listener.security.protocol.map", ""))
        )
    }
    listeners = split_list(settings.get("listeners", "PLAINTEXT://:9092"))
    names = [listener.partition("://")[0].upper() for listener in listeners]
    names += map(str.upper, split_list(settings.get("controller.listener.names", "")))
    # A controller listener without a protocol of its own is PLAINTEXT.
    return {name: mapped.get(name, name if name in _PROTOCOLS else "PLAINTEXT") for name in names}


def _strange_mechanisms(settings: Mapping[str, str], listener: str) -> list[str]:
    own = settings.get(f"listener.name.{listener.lower()}.{MECHANISMS}")
    mechanisms = split_list(settings.get(MECHANISMS, KERBEROS) if own is None else own)
    return [word for word in mechanisms if word not in _MECHANISMS_WITHOUT_PLUG_IN]


def _release(node: NodeFacts) -> Iterator[Finding]:
    found = node.metadata_version_max
    if found is None or found == TESTED_METADATA_VERSION:
        return
    text = (
        f"the node is not {TESTED_RELEASE}, which the replacement is tested with:"
        f" {'upgrade it' if found < TESTED_METADATA_VERSION else 'rehearse on a copy'} first"
    )
    yield note(Subject.NODE, text, [node.node_id])


def _other_settings(node: NodeFacts) -> Iterator[Finding]:
    if node.settings.get("remote.log.storage.system.enable") == "true":
        text = (
            "remote.log.storage.system.enable is true, and Ottla cannot read tiered records: "
            "disable remote.storage.enable of every topic, then this setting"
        )
        yield obstacle(Subject.NODE, text, [node.node_id])
    if node.settings.get("zookeeper.metadata.migration.enable") == "true":
        text = "the migration from ZooKeeper is not finished: finish it first"
        yield obstacle(Subject.NODE, text, [node.node_id])
    if node.roles >= {"broker", "controller"}:
        text = (
            "the node is a controller, too: keep it running as one, or move its vote to another"
            " controller by kafka-metadata-quorum add-controller and remove-controller"
        )
        yield note(Subject.NODE, text, [node.node_id])
