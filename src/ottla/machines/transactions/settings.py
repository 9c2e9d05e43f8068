"""The broker settings that transactions obey, with Kafka's defaults, and a limit of our own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings of transactions; the names are Kafka's, underscores for dots.

    The last one is not Kafka's: the maximum number of transactional ids per machine.
    """

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = False
    transactional_ids_max: int = 100_000
