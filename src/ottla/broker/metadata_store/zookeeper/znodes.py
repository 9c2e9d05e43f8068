"""Kafka's nodes in ZooKeeper: their paths and their content.

Data that Kafka does not keep there (eligible leader replicas, KIP-966) goes into the same JSON
under other names, which Kafka ignores.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from ottla.metadata.image import (
    BrokerImage,
    ConfigResource,
    Endpoint,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.metadata.records import UNASSIGNED_DIRECTORY
from ottla.model.identifiers import BrokerId, ProducerId, uuid_from_text, uuid_to_text

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONFIGS: Final[Mapping[ResourceType, str]] = {
    ResourceType.TOPIC: "/config/topics",
    ResourceType.BROKER: "/config/brokers",
    ResourceType.CLIENT_METRICS: "/config/client-metrics",
    ResourceType.GROUP: "/config/groups",
}
DELETED_TOPICS: Final = "/admin/delete_topics"
FEATURES: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"
SEEN_EPOCHS: Final = "/ottla/seen_broker_epochs"
"""For each broker the registration that the controller has recorded: ours, not Kafka's."""
PERSISTENT_PATHS: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    "/config/changes",
    *CONFIGS.values(),
    "/config/clients",
    "/config/users",
    "/config/ips",
    DELETED_TOPICS,
    "/brokers/seqid",
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/cluster",
    FEATURES,
    PRODUCER_IDS,
    SEEN_EPOCHS,
)
"""Nodes that are created, with all parents, before anything else."""
_DEFAULT_NAME: Final = "<default>"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class UnreadableZnodeError(Exception):
    """A node has content that Kafka would not have written."""


class LiveBroker(NamedTuple):
    """A broker's registration node."""

    broker: BrokerImage
    has_lost_tail: bool
    """Whether it may have lost its unsynced tail."""
    min_insync_replicas: int | None = None
    """The setting in the broker's configuration file; None if it is not registered."""
    follows_quorum: bool = True
    """Whether its release follows the leader of a quorum, during a migration."""


def topic_path(topic: str) -> str:
    """Return where a topic's assignment is."""
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, number: int) -> str:
    """Return the node above a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{number}"


def state_path(topic: str, number: int) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{partition_path(topic, number)}/state"


def seen_epoch_path(broker_id: BrokerId) -> str:
    """Return where it is kept which registration of a broker the controller has handled."""
    return f"{SEEN_EPOCHS}/{broker_id}"


def config_path(resource: ConfigResource) -> str:
    """Return where the settings of a resource are; groups may have any name."""
    name = quote(resource.name, safe="") if resource.name else _DEFAULT_NAME
    if name in {".", ".."}:  # ZooKeeper takes these for places
        name = name.replace(".", "%2E")
    return f"{CONFIGS[resource.kind]}/{name}"


def config_resource(kind: ResourceType, node_name: str) -> ConfigResource:
    """Return the resource of a config node."""
    return ConfigResource(kind, "" if node_name == _DEFAULT_NAME else unquote(node_name))


# -- controller -----------------------------------------------------------------------------------


def controller_data(broker_id: BrokerId, now_ms: int) -> bytes:
    """Encode the controller."""
    return _dump(
        {"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1}
    )


def read_controller(data: bytes) -> int:
    """Decode the controller."""
    with _read_from(CONTROLLER):
        return int(_load(data)["brokerid"])


def read_number(path: str, data: bytes) -> int:
    """Return a number that is a node's only content, such as an epoch."""
    with _read_from(path):
        return int(data)


def cluster_id_data(cluster_id: str) -> bytes:
    """Say which cluster this is."""
    return _dump({"version": "1", "id": cluster_id})


def read_cluster_id(data: bytes) -> str:
    """Return which cluster this is."""
    with _read_from(CLUSTER_ID):
        return str(_load(data)["id"])


# -- brokers --------------------------------------------------------------------------------------


def broker_data(live: LiveBroker, now_ms: int) -> bytes:
    """Encode a broker's addresses and properties."""
    broker = live.broker
    plaintext = next((one for one in broker.endpoints if one.security_protocol == 0), None)
    found: dict[str, Any] = {
        "version": 5,
        "host": None if plaintext is None else plaintext.host,
        "port": -1 if plaintext is None else plaintext.port,
        "endpoints": [f"{one.name}://{one.host}:{one.port}" for one in broker.endpoints],
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "listener_security_protocol_map": {
            one.name: _PROTOCOLS[one.security_protocol] for one in broker.endpoints
        },
        "features": {
            name: {"min_version": first, "max_version": last}
            for name, (first, last) in broker.levels_by_feature.items()
        },
        "ottla_incarnation_id": uuid_to_text(broker.incarnation_id),
        "ottla_log_dirs": [uuid_to_text(one) for one in broker.log_dirs],
        "ottla_has_lost_tail": live.has_lost_tail,
        "ottla_min_insync_replicas": live.min_insync_replicas,
        "ottla_follows_quorum": live.follows_quorum,
    }
    if broker.rack is not None:
        found["rack"] = broker.rack
    return _dump(found)


def read_broker(broker_id: BrokerId, data: bytes, broker_epoch: int) -> LiveBroker:
    """Return a broker as it registered."""
    with _read_from(f"{BROKER_IDS}/{broker_id}"):
        found = _load(data)
        protocols = found.get("listener_security_protocol_map", {})
        broker = BrokerImage(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            incarnation_id=_uuid(found.get("ottla_incarnation_id")),
            endpoints=tuple(_endpoint(one, protocols) for one in found["endpoints"]),
            rack=found.get("rack"),
            log_dirs=tuple(_uuid(one) for one in found.get("ottla_log_dirs", ())),
            levels_by_feature={
                name: (levels["min_version"], levels["max_version"])
                for name, levels in (found.get("features") or {}).items()
            },
        )
        has_lost_tail = bool(found.get("ottla_has_lost_tail", True))
        min_isr = found.get("ottla_min_insync_replicas")
        return LiveBroker(
            broker,
            has_lost_tail,
            None if min_isr is None else int(min_isr),
            bool(found.get("ottla_follows_quorum", False)),
        )


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(name, host, int(port), _PROTOCOLS.index(protocols.get(name, name)))


# -- topics ---------------------------------------------------------------------------------------


def topic_data(topic: TopicImage) -> bytes:
    """Say which brokers keep which partition."""
    numbered = list(enumerate(topic.partitions))
    return _dump(
        {
            "version": 3,
            "topic_id": uuid_to_text(topic.topic_id),
            "partitions": {str(number): list(one.replicas) for number, one in numbered},
            "adding_replicas": {
                str(number): list(one.adding_replicas)
                for number, one in numbered
                if one.adding_replicas
            },
            "removing_replicas": {
                str(number): list(one.removing_replicas)
                for number, one in numbered
                if one.removing_replicas
            },
        }
    )


def state_data(partition: PartitionImage, controller_epoch: int) -> bytes:
    """Encode a partition's leader and ISR; the node's version is the partition epoch."""
    found: dict[str, Any] = {
        "version": 1,
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    if partition.leader_recovery_state:
        found["leader_recovery_state"] = partition.leader_recovery_state
    if partition.eligible_leader_replicas:
        found["ottla_elr"] = list(partition.eligible_leader_replicas)
    if partition.last_known_elr:
        found["ottla_last_known_elr"] = list(partition.last_known_elr)
    if any(one != UNASSIGNED_DIRECTORY for one in partition.directories):
        found["ottla_directories"] = [uuid_to_text(one) for one in partition.directories]
    return _dump(found)


def read_topic(name: str, data: bytes, states: Mapping[int, tuple[bytes, int]]) -> TopicImage:
    """Return a topic, given the state of each partition and the version of that node.

    A partition without a state has no leader, and all replicas in sync: it never had a leader.
    """
    with _read_from(topic_path(name)):
        found = _load(data)
        partitions = []
        for number in range(len(found["partitions"])):
            key = str(number)
            bare = PartitionImage(
                replicas=(replicas := tuple(found["partitions"][key])),
                isr=replicas,
                adding_replicas=tuple(found.get("adding_replicas", {}).get(key, ())),
                removing_replicas=tuple(found.get("removing_replicas", {}).get(key, ())),
                directories=(UNASSIGNED_DIRECTORY,) * len(replicas),
            )
            state = states.get(number)
            partitions.append(bare if state is None else _with_state(bare, *state))
        return TopicImage(name, uuid_from_text(found["topic_id"]), tuple(partitions))


def _with_state(bare: PartitionImage, data: bytes, version: int) -> PartitionImage:
    found = _load(data)
    directories = tuple(_uuid(one) for one in found.get("ottla_directories", ()))
    return replace(
        bare,
        isr=tuple(found["isr"]),
        leader=found["leader"],
        leader_epoch=found["leader_epoch"],
        partition_epoch=version,
        directories=directories if len(directories) == len(bare.replicas) else bare.directories,
        leader_recovery_state=found.get("leader_recovery_state", 0),
        eligible_leader_replicas=tuple(found.get("ottla_elr", ())),
        last_known_elr=tuple(found.get("ottla_last_known_elr", ())),
    )


# -- everything else ------------------------------------------------------------------------------


def config_data(settings: Mapping[str, str]) -> bytes:
    """Encode the settings of a resource."""
    return _dump({"version": 1, "config": dict(settings)})


def read_config(path: str, data: bytes) -> dict[str, str]:
    """Decode the settings of a resource."""
    with _read_from(path):
        return {str(name): str(value) for name, value in _load(data).get("config", {}).items()}


def features_data(level_by_feature: Mapping[str, int]) -> bytes:
    """Say at which levels the cluster uses features."""
    return _dump({"version": 2, "status": 1, "features": dict(level_by_feature)})


def read_features(data: bytes) -> dict[str, int]:
    """Return at which levels the cluster uses features; nothing if none was ever set."""
    if not data:
        return {}
    with _read_from(FEATURES):
        return {str(name): int(level) for name, level in _load(data)["features"].items()}


def producer_ids_data(broker_id: BrokerId, next_producer_id: ProducerId, block_size: int) -> bytes:
    """Say which producer ids were given away last."""
    return _dump(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(next_producer_id - block_size),
            "block_end": str(next_producer_id - 1),
        }
    )


def read_producer_ids(data: bytes) -> int:
    """Return the next producer id that was not given away."""
    if not data:
        return 0
    with _read_from(PRODUCER_IDS):
        return int(_load(data)["block_end"]) + 1


def _dump(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()


def _load(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError(f"{data[:80]!r} is no object")
    return found


@contextmanager
def _read_from(path: str) -> Iterator[None]:
    """Say where it was that something could not be read."""
    try:
        yield
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise UnreadableZnodeError(f"{path}: {error!r}") from None


def _uuid(text: str | None) -> bytes:
    return bytes(16) if text is None else uuid_from_text(text)
