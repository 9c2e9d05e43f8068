"""Interceptors see every record, and cannot drop any."""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.producer.state.settings import read_producer_settings
from ottla.clients.records.interceptors import Interceptors
from ottla.clients.records.tracing import TracePropagation

SERVERS = {"bootstrap.servers": "a:1"}


class Noting:
    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[Any] = []

    def on_send(self, record: str) -> str:
        return f"{record}-{self.name}"

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self.heard.append((metadata, error))

    def on_consume(self, records: Sequence[Any]) -> Sequence[Any]:
        return records[1:]

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        self.heard.append(offsets)

    def close(self) -> None:
        self.heard.append("closed")


class Failing:
    def on_send(self, record: str) -> str:
        raise ValueError("not today")


def test_each_interceptor_gets_the_result_of_its_predecessor() -> None:
    first, second = Noting("1"), Noting("2")
    chain = Interceptors([first, second])
    assert chain.sent("letter") == "letter-1-2"
    assert chain.consumed([1, 2, 3]) == [3]
    chain.acknowledged("there", None)
    chain.committed({"p": 1})
    chain.close()
    assert first.heard == second.heard == [("there", None), {"p": 1}, "closed"]


def test_a_failing_interceptor_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert Interceptors([Failing(), Noting("2")]).sent("letter") == "letter-2"
    assert "not today" in caplog.text


def test_without_interceptors_nothing_is_called() -> None:
    assert Interceptors([Failing()]).on_consume == ()
    assert Interceptors().on_send == ()


def test_interceptors_are_a_setting() -> None:
    failing = Failing()
    _, settings = read_producer_settings(SERVERS, {"interceptors": [failing]})
    assert settings.interceptors == (failing,)
    _, settings = read_producer_settings(SERVERS, {"interceptors": failing})
    assert settings.interceptors == (failing,)
    for wrong in ("com.example.Interceptor", Failing, object()):
        with pytest.raises(InvalidClientSettingError, match="objects that have one of on_send"):
            read_producer_settings(SERVERS, {"interceptor.classes": [wrong]})


class Record(NamedTuple):
    headers: Sequence[tuple[str, bytes | None]]


class W3C:
    """Writes a trace as OpenTelemetry's own propagator does."""

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def inject(self, carrier: dict[str, str]) -> None:
        if self.trace:
            carrier["traceparent"] = self.trace

    def extract(self, carrier: dict[str, str]) -> str:
        return carrier["traceparent"]


def test_a_trace_goes_along_in_the_headers() -> None:
    sent = TracePropagation(W3C("00-aa-bb-01")).on_send(
        Record([("traceparent", b"old"), ("mine", None)])
    )
    assert sent.headers == [("mine", None), ("traceparent", b"00-aa-bb-01")]
    assert TracePropagation(W3C("")).context_of(sent) == "00-aa-bb-01"


def test_without_a_trace_a_record_stays_as_it_is() -> None:
    record = Record([("mine", b"1")])
    assert TracePropagation(W3C("")).on_send(record) is record


def test_without_opentelemetry_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match="pip install opentelemetry-api"):
        TracePropagation()
