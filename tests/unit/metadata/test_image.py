"""A broker's queries of an image."""

import dataclasses

import pytest

from ottla.metadata.image import BrokerImage, Endpoint, PartitionImage, TopicImage
from ottla.metadata.records import ConfigRecord
from tests.metadata_building import image_of, uuid_of


def test_a_partition_is_found_by_its_number_and_no_other() -> None:
    first, second = PartitionImage((0,), (0,)), PartitionImage((1,), (1,))
    topic = TopicImage("t", uuid_of(1), (first, second))
    assert topic.partition(1) is second
    assert topic.partition(2) is None
    assert topic.partition(-1) is None


def test_a_broker_is_found_where_the_client_came_in() -> None:
    inside, outside = Endpoint("INSIDE", "a", 1, 0), Endpoint("OUTSIDE", "b", 2, 1)
    broker = BrokerImage(0, 0, uuid_of(1), (inside, outside))
    assert broker.endpoint("OUTSIDE") == outside
    assert broker.endpoint("ELSEWHERE") is None


@pytest.mark.parametrize(
    ("is_fenced", "is_shutting_down", "is_active"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_a_broker_that_is_fenced_or_leaving_is_not_active(
    is_fenced: bool, is_shutting_down: bool, is_active: bool
) -> None:
    broker = BrokerImage(
        0, 0, uuid_of(1), (), is_fenced=is_fenced, is_shutting_down=is_shutting_down
    )
    assert broker.is_active == is_active


def setting(kind: int, resource: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def test_what_is_set_for_one_broker_goes_before_what_is_set_for_all() -> None:
    image = image_of(
        setting(4, "", "a", "all"), setting(4, "", "b", "all"), setting(4, "3", "b", "three")
    )
    assert image.broker_settings(3) == {"a": "all", "b": "three"}
    assert image.broker_settings(4) == {"a": "all", "b": "all"}


def test_a_topic_has_the_settings_of_its_name() -> None:
    image = image_of(setting(2, "t", "a", "1"), setting(4, "t", "a", "2"))
    assert image.topic_settings("t") == {"a": "1"}
    assert image.topic_settings("u") == {}


def test_an_image_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        image_of().end_offset = 1  # type: ignore[misc]
