"""What a controller takes from its broker's configuration."""

from dataclasses import dataclass, field

from ottla.model.settings.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The static settings that decisions go by; Kafka's names and defaults."""

    broker_id: int
    """The controller's own broker: what was set for it while running goes before the rest."""
    num_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    """What a topic has that sets nothing itself, as far as the configuration file says."""
    leader_imbalance_per_broker_percentage: int = 10
