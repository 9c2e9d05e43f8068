"""The settings of a broker's parts, from its configuration."""

import sys

from ottla.broker.maintenance.log_cleaner import CleanerSettings
from ottla.broker.maintenance.log_scrubber import ScrubSettings
from ottla.broker.startup.descriptors import share_descriptors
from ottla.broker.transport.connection_limits import IN_FLIGHT_MAX, ConnectionLimits
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.transactions.settings import TransactionSettings
from ottla.model.settings.broker_config import BrokerConfig


def connection_limits(config: BrokerConfig, descriptors_max: int = sys.maxsize) -> ConnectionLimits:
    """Return the connection limits; -1 is no limit."""
    return ConnectionLimits(
        connections_at_once_max=share_descriptors(descriptors_max).connections,
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_address_max=config.max_connections_per_ip,
        idle_ms_max=_or_no_limit(config.connections_max_idle_ms),
        request_bytes_max=_or_no_limit(config.queued_max_request_bytes),
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        in_flight_requests_max=min(config.queued_max_requests, IN_FLIGHT_MAX),
    )


def _or_no_limit(limit: int) -> int:
    return sys.maxsize if limit < 0 else limit


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """Return how compaction works."""
    return CleanerSettings(
        threads=config.log_cleaner_threads,
        backoff_ms=config.log_cleaner_backoff_ms,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )


def scrub_settings(config: BrokerConfig) -> ScrubSettings:
    """Return the settings of the log scrubber."""
    return ScrubSettings(
        interval_ms=config.log_scrub_interval_ms,
        bytes_per_second=config.log_scrub_io_max_bytes_per_second,
    )


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Return the settings of groups."""
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_bytes_max=config.ottla_group_max_bytes,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
    )


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """Return the settings of transactions."""
    abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    remove_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
    return TransactionSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=abort_ms,
        transaction_remove_expired_transaction_cleanup_interval_ms=remove_ms,
        transaction_two_phase_commit_enable=config.transaction_two_phase_commit_enable,
    )


def controller_settings(config: BrokerConfig) -> ControllerSettings:
    """Return the settings of this broker's controller."""
    return ControllerSettings(
        broker_id=config.node_id,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        topic_defaults=config.topic_defaults(),
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
    )
