"""Settings of a broker in a cluster that follow from several of Kafka's."""

import math

from ottla.model.settings.broker_config import BrokerConfig


def rebalance_seconds(config: BrokerConfig) -> float:
    """Return the interval of the controller's preferred leader checks."""
    is_on = config.auto_leader_rebalance_enable
    return config.leader_imbalance_check_interval_seconds if is_on else math.inf


def shut_down_ms(config: BrokerConfig) -> int:
    """Return how long a broker that stops waits for others to lead."""
    tries = config.controlled_shutdown_max_retries if config.controlled_shutdown_enable else 0
    return tries * config.controlled_shutdown_retry_backoff_ms
