"""Metrics that clients push (KIP-714): subscriptions, and validation of pushes.

    client                                 broker
     | -- GetTelemetrySubscriptions -->     matching subscriptions: metrics, interval, an id
     | -- PushTelemetry, with the id -->    known id, in time, small enough: handed to the sink
     | -- PushTelemetry, changed since -->  UNKNOWN_SUBSCRIPTION_ID, and the client asks again

A client is identified by the id in its first response. Clients that are silent for long are
dropped, as are the most silent of too many; they are added again when they come back.
"""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.broker.requests.request_context import RequestContext
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.metadata.image import ClusterImage, ResourceType
from ottla.metadata.records import ConfigRecord, MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import uuid_to_text
from ottla.model.linear_regex import SUBJECT_CHARACTERS_MAX
from ottla.model.settings.client_metrics_config import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    ClientMetricsConfig,
)
from ottla.model.settings.settings import InvalidSettingsError
from ottla.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.compression.codecs import Compression, decompress
from ottla.wire.records.crc32c import crc32c

CLIENTS_MAX: Final = 16_384
SILENCE_MS_MIN: Final = 60_000
"""A client is not forgotten before it was silent for so long, and for three intervals."""
ACCEPTED_COMPRESSION: Final = (
    Compression.ZSTD,
    Compression.LZ4,
    Compression.GZIP,
    Compression.SNAPPY,
)
_CODECS: Final = frozenset(Compression)
_NO_ID: Final = bytes(16)
_RESERVED_IDS: Final = frozenset({_NO_ID, bytes(15) + b"\x01"})
_NEVER_MS: Final = -(1 << 62)
_ASK_AGAIN: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)
"""After these errors a client may get its subscription again before the interval ends."""
_log = logging.getLogger(__name__)


class TelemetrySink(Protocol):
    """Receives pushed metrics."""

    def take(self, client_instance_id: bytes, context: RequestContext, metrics: bytes) -> None:
        """Take the metrics of one push: OTLP's MetricsData, uncompressed."""


class LoggingSink:
    """Logs pushed metrics at level debug."""

    def take(self, client_instance_id: bytes, context: RequestContext, metrics: bytes) -> None:
        """Record the size of one push."""
        _log.debug(
            "client %s (%s at %s) pushed %d bytes of metrics",
            uuid_to_text(client_instance_id),
            context.client_id,
            context.client_address,
            len(metrics),
        )


@dataclass(slots=True)
class _Client:
    """The state of one client, since the last change of subscriptions."""

    attributes: dict[str, str | None]
    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    version: int
    expires_ms: int = 0
    asked_ms: int = _NEVER_MS
    pushed_ms: int = _NEVER_MS
    is_expected: bool = False
    """Whether it got its subscription, and has not pushed since."""
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE


class ClientTelemetry:
    """Matches clients with subscriptions. Subscribe it to the metadata."""

    def __init__(
        self, clock: Clock, randomness: Randomness, bytes_max: int, sink: TelemetrySink
    ) -> None:
        self._clock = clock
        self._randomness = randomness
        self._bytes_max = bytes_max
        self._sink = sink
        self._subscriptions: list[ClientMetricsConfig] = []
        self._version = 0
        self._clients: OrderedDict[bytes, _Client] = OrderedDict()

    def is_wanted(self) -> bool:
        """Whether there is any subscription: else clients need not be bothered."""
        return bool(self._subscriptions)

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Go on to the next image."""
        if any(
            isinstance(record, ConfigRecord) and record.resource_type == ResourceType.CLIENT_METRICS
            for record in records
        ):
            self.take(image)

    def take(self, image: ClusterImage) -> None:
        """Apply the subscriptions of an image; match all clients again."""
        self._version += 1
        self._subscriptions = []
        for resource, settings in image.configs.items():
            if resource.kind is not ResourceType.CLIENT_METRICS:
                continue
            try:
                self._subscriptions.append(ClientMetricsConfig.parse(settings))
            except InvalidSettingsError as error:  # another release wrote it
                _log.error("client metrics %s: %s", resource.name, error.detail)

    # -- requests -------------------------------------------------------------------------------

    def subscription(
        self, context: RequestContext, client_instance_id: bytes
    ) -> GetTelemetrySubscriptionsResponse:
        """Return the metrics to push; ApiError THROTTLING_QUOTA_EXCEEDED for an early request."""
        if client_instance_id == _NO_ID:
            client_instance_id = self._randomness.uuid()
        now_ms = self._clock.monotonic_ms()
        client = self._client(context, client_instance_id, now_ms)
        is_due = now_ms - max(client.asked_ms, client.pushed_ms) >= client.interval_ms
        if not is_due and client.last_error not in _ASK_AGAIN:
            raise _too_early(client)
        client.asked_ms = now_ms
        client.is_expected = True
        client.last_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=client.subscription_id,
            accepted_compression_types=list(ACCEPTED_COMPRESSION),
            push_interval_ms=client.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=True,
            requested_metrics=list(client.metrics),
        )

    def push(self, context: RequestContext, request: PushTelemetryRequest) -> None:
        """Accept a client's push; ApiError gives the reason of a refusal."""
        if request.client_instance_id in _RESERVED_IDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the id of the client is a reserved one")
        now_ms = self._clock.monotonic_ms()
        client = self._client(context, request.client_instance_id, now_ms)
        try:
            self._check(client, request, now_ms)
            if request.metrics:
                self._sink.take(request.client_instance_id, context, self._metrics_of(request))
        except ApiError as error:
            client.last_error = error.code
            raise
        finally:
            client.is_terminating = request.terminating
        client.last_error = ErrorCode.NONE

    def _check(self, client: _Client, request: PushTelemetryRequest, now_ms: int) -> None:
        if client.is_terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the client has pushed for the last time")
        # The first push after a subscription varies by a half, so that clients do not synchronize.
        is_due = client.is_expected or now_ms - client.pushed_ms >= client.interval_ms
        if is_due:
            client.pushed_ms = now_ms
            client.is_expected = False
        elif not request.terminating:
            raise _too_early(client)
        if request.subscription_id != client.subscription_id:
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "ask for the subscription again")
        if request.compression_type not in _CODECS:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec {request.compression_type}"
            )
        if len(request.metrics) > self._bytes_max:
            raise ApiError(
                ErrorCode.TELEMETRY_TOO_LARGE, f"a push has at most {self._bytes_max} bytes"
            )

    def _metrics_of(self, request: PushTelemetryRequest) -> bytes:
        codec = Compression(request.compression_type)
        try:
            return bytes(decompress(codec, request.metrics, size_bytes_max=self._bytes_max))
        except ProtocolError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, error.detail) from None

    # -- clients --------------------------------------------------------------------------------

    def _client(self, context: RequestContext, client_instance_id: bytes, now_ms: int) -> _Client:
        """Return a client with its current subscription; add it if it is new."""
        client = self._clients.pop(client_instance_id, None)
        if client is None or client.expires_ms <= now_ms:
            client = self._matched(client_instance_id, _attributes(client_instance_id, context))
        elif client.version != self._version:
            client = self._matched(client_instance_id, client.attributes)
        client.expires_ms = now_ms + max(SILENCE_MS_MIN, 3 * client.interval_ms)
        self._clients[client_instance_id] = client
        while len(self._clients) > CLIENTS_MAX or self._is_first_gone(now_ms):
            self._clients.popitem(last=False)
        return client

    def _is_first_gone(self, now_ms: int) -> bool:
        return next(iter(self._clients.values())).expires_ms <= now_ms

    def _matched(self, client_instance_id: bytes, attributes: dict[str, str | None]) -> _Client:
        matching = [one for one in self._subscriptions if one.is_for(attributes)]
        metrics = tuple(dict.fromkeys(name for one in matching for name in one.metrics))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        interval_ms = min((one.interval_ms for one in matching), default=INTERVAL_MS_DEFAULT)
        interval_ms = min(interval_ms, INTERVAL_MS_DEFAULT)
        subscription_id = _subscription_id(metrics, interval_ms, client_instance_id)
        return _Client(attributes, metrics, interval_ms, subscription_id, self._version)


def _subscription_id(metrics: Sequence[str], interval_ms: int, client_instance_id: bytes) -> int:
    """Return a checksum of a subscription, different for different ones with high probability."""
    code = crc32c(f"{list(metrics)}{interval_ms}".encode()) ^ crc32c(client_instance_id)
    return code - (1 << 32) if code >= 1 << 31 else code


def _attributes(client_instance_id: bytes, context: RequestContext) -> dict[str, str | None]:
    # Longer attributes match nothing, and need not be stored.
    return {
        name: None if text is None else text[: SUBJECT_CHARACTERS_MAX + 1]
        for name, text in {
            "client_instance_id": uuid_to_text(client_instance_id),
            "client_id": context.client_id,
            "client_software_name": context.introduction.software_name,
            "client_software_version": context.introduction.software_version,
            "client_source_address": context.client_address,
            "client_source_port": str(context.introduction.port),
        }.items()
    }


def _too_early(client: _Client) -> ApiError:
    return ApiError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"not before {client.interval_ms} ms have passed"
    )
