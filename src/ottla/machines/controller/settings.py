"""The controller's part of its broker's configuration."""

from dataclasses import dataclass, field

from ottla.model.settings.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The static settings that decisions go by; Kafka's names and defaults."""

    broker_id: int
    """The controller's own broker: its dynamic settings take precedence."""
    num_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    """The settings of a topic without its own, from the configuration file."""
    leader_imbalance_per_broker_percentage: int = 10
