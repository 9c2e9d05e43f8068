"""Reads the topics of a consumer's subscription, the only member data that the broker uses."""

from collections.abc import Iterable
from typing import Final

from ottla.wire.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import read

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all the topics that these subscriptions name, or None if one cannot be read.

    Every version begins as the first does, so that those which are yet to come can be read too.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            found, _ = read(
                ConsumerProtocolSubscription, 0, memoryview(subscription), _VERSION_BYTES
            )
        except ProtocolError:
            return None
        topics.update(found.topics)
    return frozenset(topics)
