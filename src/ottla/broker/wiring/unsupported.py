"""The APIs of features that do not exist, whose response is an error."""

from functools import partial
from typing import Final

from ottla.broker.handlers.unsupported import VERSIONS_AND_REFUSALS, UnsupportedHandler
from ottla.broker.requests.routes import Route
from ottla.wire.api_key import ApiKey

_OFFERED: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Kafka offers these on PLAINTEXT listeners, too: a client with a SASL configuration then gets
ILLEGAL_SASL_STATE, and librdkafka does not report that the broker is too old. The other APIs stand
for features, which clients choose by ApiVersions."""


def unsupported_routes() -> dict[int, Route]:
    """Create the handlers, and advertise the APIs for which clients need a clear error."""
    return {
        key: Route(
            versions, UnsupportedHandler(key).handle, is_offered=partial(_OFFERED.__contains__, key)
        )
        for key, (versions, _) in VERSIONS_AND_REFUSALS.items()
    }
