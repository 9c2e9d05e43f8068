"""The registration of this broker."""

from typing import Final

from ottla.machines.controller.brokers import EPOCH_TO_BE_GIVEN
from ottla.machines.controller.features import SUPPORTED_LEVELS
from ottla.metadata.image import BrokerImage, Endpoint
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import Listener

PLAINTEXT_NUMBER: Final = 0


def registration(
    config: BrokerConfig,
    advertised: tuple[Listener, ...],
    incarnation_id: bytes,
    directory_ids: tuple[bytes, ...],
) -> BrokerImage:
    """Return the registration of a broker incarnation, for clients and other brokers."""
    endpoints = tuple(
        Endpoint(listener.name, listener.host, listener.port, PLAINTEXT_NUMBER)
        for listener in advertised
    )
    return BrokerImage(
        config.node_id,
        EPOCH_TO_BE_GIVEN,
        incarnation_id,
        endpoints,
        rack=config.broker_rack,
        log_dirs=directory_ids,
        levels_by_feature=SUPPORTED_LEVELS,
    )
