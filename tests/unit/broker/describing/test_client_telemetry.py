"""Telemetry subscriptions of clients, and the validation of their pushes."""

from dataclasses import dataclass, field

import pytest

from ottla.broker.describing import client_telemetry
from ottla.broker.describing.client_telemetry import ClientTelemetry
from ottla.broker.requests.request_context import Introduction, RequestContext
from ottla.metadata.records import ConfigRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.records.compression.codecs import Compression, compress
from tests.metadata_building import CountingRandomness, FixedClock, image_of

CONTEXT = RequestContext(
    principal="User:ANONYMOUS",
    client_id="app",
    client_address="10.0.0.1",
    listener="PLAINTEXT",
    api_version=0,
    received_ms=0,
    introduction=Introduction(4711, "ottla", "1.2.3"),
)
BYTES_MAX = 1_000
NO_ID = bytes(16)


@dataclass
class Kept:
    """A sink that keeps its input."""

    pushes: list[bytes] = field(default_factory=list)

    def take(self, client_instance_id: bytes, context: RequestContext, metrics: bytes) -> None:
        self.pushes.append(metrics)


def setting(subscription: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=16, resource_name=subscription, name=name, value=value)


@dataclass
class World:
    """Telemetry with its own clock and sink."""

    records: list[ConfigRecord] = field(default_factory=list)
    clock: FixedClock = field(default_factory=FixedClock)
    sink: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        randomness = CountingRandomness()
        randomness.uuid()  # the first is a reserved one
        self.telemetry = ClientTelemetry(self.clock, randomness, BYTES_MAX, self.sink)
        self.telemetry.take(image_of(*self.records))

    def change(self, *records: ConfigRecord) -> None:
        self.records += records
        self.telemetry.on_change(image_of(*self.records), records)

    def push(self, client_id: bytes, subscription_id: int, **fields: object) -> ErrorCode:
        request = PushTelemetryRequest(
            client_instance_id=client_id, subscription_id=subscription_id, metrics=b"metrics"
        )
        for name, value in fields.items():
            setattr(request, name, value)
        try:
            self.telemetry.push(CONTEXT, request)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def ask(self, client_id: bytes = NO_ID) -> tuple[bytes, int]:
        answer = self.telemetry.subscription(CONTEXT, client_id)
        return answer.client_instance_id, answer.subscription_id


def world(*records: ConfigRecord) -> World:
    return World(list(records) or [setting("a", "metrics", "org.a")])


# -- matching -------------------------------------------------------------------------------------


def test_a_client_gets_an_id_and_the_metrics_of_all_its_subscriptions() -> None:
    answer = world(
        setting("a", "metrics", "org.a,org.b"),
        setting("b", "metrics", "org.b,org.c"),
        setting("b", "interval.ms", "1000"),
        setting("c", "metrics", "org.d"),
        setting("c", "match", "client_id=other"),
    ).telemetry.subscription(CONTEXT, NO_ID)
    assert answer.client_instance_id != NO_ID
    assert answer.requested_metrics == ["org.a", "org.b", "org.c"]
    assert answer.push_interval_ms == 1000
    assert answer.telemetry_max_bytes == BYTES_MAX


def test_one_star_stands_for_all_metrics() -> None:
    telemetry = world(setting("a", "metrics", "org.a"), setting("b", "metrics", "*")).telemetry
    assert telemetry.subscription(CONTEXT, NO_ID).requested_metrics == ["*"]


@pytest.mark.parametrize(
    "condition",
    [
        "client_id=a.p",
        "client_software_name=ottla",
        r"client_software_version=1\.2\..*",
        r"client_source_address=10\..*",
        "client_source_port=4711",
        "client_instance_id=AAAAAAAAAAAAAAAAAAAAAg",
    ],
)
def test_a_client_is_known_by_its_attributes(condition: str) -> None:
    telemetry = world(setting("a", "metrics", "x"), setting("a", "match", condition)).telemetry
    assert telemetry.subscription(CONTEXT, NO_ID).requested_metrics == ["x"]


def test_without_a_subscription_no_metrics_are_requested() -> None:
    telemetry = World()
    assert not telemetry.telemetry.is_wanted()
    telemetry.change(setting("a", "interval.ms", "1000"))
    assert telemetry.telemetry.is_wanted()
    telemetry.change(setting("a", "interval.ms", None))
    assert not telemetry.telemetry.is_wanted()


def test_a_subscription_of_another_release_is_passed_over() -> None:
    telemetry = world(setting("a", "new.setting", "1"), setting("b", "metrics", "x")).telemetry
    assert telemetry.subscription(CONTEXT, NO_ID).requested_metrics == ["x"]


def test_a_long_client_id_matches_nothing_and_is_not_kept() -> None:
    telemetry = world(setting("a", "metrics", "x"), setting("a", "match", "client_id=.*")).telemetry
    context = CONTEXT._replace(client_id="x" * 30_000)
    assert telemetry.subscription(context, NO_ID).requested_metrics == []


# -- pushing --------------------------------------------------------------------------------------


def test_pushes_come_one_interval_after_the_other() -> None:
    known = world(setting("a", "metrics", "x"), setting("a", "interval.ms", "1000"))
    client, number = known.ask()
    assert known.push(client, number) is ErrorCode.NONE
    assert known.push(client, number) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    known.clock.time_ms += 1000
    assert known.push(client, number) is ErrorCode.NONE
    assert known.sink.pushes == [b"metrics"] * 2


def test_asking_again_too_early_is_refused() -> None:
    known = world()
    client, _ = known.ask()
    with pytest.raises(ApiError, match="not before 300000 ms"):
        known.ask(client)
    known.clock.time_ms += 300_000
    known.ask(client)


def test_a_changed_subscription_is_sent_at_once() -> None:
    known = world()
    client, number = known.ask()
    known.change(setting("a", "metrics", "org.b"))
    assert known.push(client, number) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    same_client, other_number = known.ask(client)
    assert same_client == client
    assert other_number != number
    assert known.push(client, other_number) is ErrorCode.NONE


def test_the_last_push_may_come_early_and_none_after_it() -> None:
    known = world()
    client, number = known.ask()
    assert known.push(client, number) is ErrorCode.NONE
    assert known.push(client, number, terminating=True) is ErrorCode.NONE
    known.clock.time_ms += 300_000
    assert known.push(client, number, terminating=True) is ErrorCode.INVALID_REQUEST


def test_a_wrong_codec_lets_the_client_ask_again() -> None:
    known = world()
    client, number = known.ask()
    wrong = known.push(client, number, compression_type=9)
    assert wrong is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    known.ask(client)


@pytest.mark.parametrize("codec", Compression)
def test_metrics_reach_the_sink_uncompressed(codec: Compression) -> None:
    known = world()
    client, number = known.ask()
    packed = bytes(compress(codec, b"metrics" * 9))
    assert known.push(client, number, compression_type=codec, metrics=packed) is ErrorCode.NONE
    assert known.sink.pushes == [b"metrics" * 9]


@pytest.mark.parametrize(
    ("codec", "metrics", "code"),
    [
        (Compression.NONE, bytes(BYTES_MAX + 1), ErrorCode.TELEMETRY_TOO_LARGE),
        (Compression.ZSTD, b"no frame", ErrorCode.INVALID_RECORD),
        (
            Compression.GZIP,
            bytes(compress(Compression.GZIP, bytes(BYTES_MAX + 1))),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_metrics_that_are_too_large_or_damaged_are_refused(
    codec: Compression, metrics: bytes, code: ErrorCode
) -> None:
    known = world()
    client, number = known.ask()
    assert known.push(client, number, compression_type=codec, metrics=metrics) is code
    assert known.sink.pushes == []


@pytest.mark.parametrize("client_id", [NO_ID, bytes(15) + b"\x01"])
def test_reserved_ids_are_refused(client_id: bytes) -> None:
    assert world().push(client_id, 0) is ErrorCode.INVALID_REQUEST


# -- expiry ---------------------------------------------------------------------------------------


def test_a_client_that_was_silent_for_long_begins_anew() -> None:
    known = world(setting("a", "metrics", "x"), setting("a", "interval.ms", "100"))
    client, number = known.ask()
    assert known.push(client, number, terminating=True) is ErrorCode.NONE
    known.clock.time_ms += client_telemetry.SILENCE_MS_MIN
    assert known.push(client, number) is ErrorCode.NONE


def test_of_too_many_clients_the_most_silent_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_telemetry, "CLIENTS_MAX", 2)
    known = world()
    first, _ = known.ask()
    known.ask()
    known.ask()
    known.ask(first)  # a new instance: a known one would be refused as too early
