"""Prometheus' text format, verified with Prometheus' own parser."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics.exposition import (
    PART_LINES,
    Family,
    Sample,
    column,
    counter,
    gauge,
    labels,
    text_parts,
)

LABEL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


def read_back(*families: Family) -> dict[str, list[tuple[str, dict[str, str], float]]]:
    text = "".join(text_parts(families))
    return {
        family.name: [(sample.name, sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


@given(LABEL, LABEL, st.one_of(st.integers(0, 2**53), st.floats(allow_nan=False)))
def test_labels_and_values_come_back_as_they_were(one: str, two: str, value: float) -> None:
    sample = Sample(labels(consumergroup=one, topic=two), value)
    found = read_back(gauge("kafka_consumergroup_lag", "Lag.", [sample]))
    assert found == {
        "kafka_consumergroup_lag": [
            ("kafka_consumergroup_lag", {"consumergroup": one, "topic": two}, value)
        ]
    }


def test_a_family_with_one_value_needs_no_labels() -> None:
    assert read_back(gauge("kafka_brokers", "Brokers.", 1), counter("a_total", "A.", 2.5)) == {
        "kafka_brokers": [("kafka_brokers", {}, 1.0)],
        "a": [("a_total", {}, 2.5)],
    }


def test_suffixes_make_a_summary() -> None:
    samples = [
        Sample(labels(request="Fetch", quantile="0.5"), 3),
        Sample(labels(request="Fetch"), 7, "_count"),
        Sample(labels(request="Fetch"), 21, "_sum"),
    ]
    found = read_back(Family("times", "summary", "Times.", samples))
    assert [name for name, _, _ in found["times"]] == ["times", "times_count", "times_sum"]


def test_much_is_written_in_parts_of_which_none_is_long() -> None:
    texts = [labels(partition=number) for number in range(1000)]
    parts = list(text_parts([gauge("offset", "Offset.", column(texts, range(1000)))]))
    assert len(parts) == 1000 // PART_LINES + 1
    assert max(part.count("\n") for part in parts) <= PART_LINES + 1
    assert "".join(parts).count("\n") == 1000 + 2
