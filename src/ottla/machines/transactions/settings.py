"""The broker settings that transactions obey, and a limit of our own."""

from dataclasses import dataclass
from typing import Self

from ottla.model.settings.broker_config import DEFAULT_CONFIG, BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings of transactions; the names are Kafka's, underscores for dots.

    The last setting is not Kafka's: the maximum number of transactional ids per machine.
    """

    transaction_max_timeout_ms: int = DEFAULT_CONFIG.transaction_max_timeout_ms
    transactional_id_expiration_ms: int = DEFAULT_CONFIG.transactional_id_expiration_ms
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = (
        DEFAULT_CONFIG.transaction_abort_timed_out_transaction_cleanup_interval_ms
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = (
        DEFAULT_CONFIG.transaction_remove_expired_transaction_cleanup_interval_ms
    )
    transaction_two_phase_commit_enable: bool = DEFAULT_CONFIG.transaction_two_phase_commit_enable
    transactional_ids_max: int = 100_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """Return the settings of a configuration."""
        abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        remove_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        return cls(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=abort_ms,
            transaction_remove_expired_transaction_cleanup_interval_ms=remove_ms,
            transaction_two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        )
