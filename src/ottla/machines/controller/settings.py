"""The controller's part of its broker's configuration."""

from dataclasses import dataclass, field
from typing import Self

from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import DEFAULT_CONFIG, BrokerConfig
from ottla.model.settings.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The static settings that decisions go by; the names are Kafka's."""

    broker_id: BrokerId
    """The controller's own broker: its dynamic settings take precedence."""
    num_partitions: int = DEFAULT_CONFIG.num_partitions
    default_replication_factor: int = DEFAULT_CONFIG.default_replication_factor
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    """The settings of a topic without its own, from the configuration file."""
    leader_imbalance_per_broker_percentage: int = (
        DEFAULT_CONFIG.leader_imbalance_per_broker_percentage
    )
    broker_session_timeout_ms: int = DEFAULT_CONFIG.broker_session_timeout_ms

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            broker_id=config.node_id,
            num_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            topic_defaults=config.topic_defaults(),
            leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
            broker_session_timeout_ms=config.broker_session_timeout_ms,
        )
