"""Ordered workers against an Apache Kafka broker: the same stories as against Ottla."""

from collections.abc import Iterator

import pytest

from tests.clients import test_ordered_workers as stories
from tests.clients import test_ordered_workers_failures as failures
from tests.clients.workshop import FACES, workshops
from tests.interop.kafka_node import KafkaNode, kafka_node

each_face = pytest.mark.parametrize("face", FACES)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start()


@each_face
def test_eight_workers_keep_the_order(node: KafkaNode, face: str) -> None:
    with workshops() as make:
        stories.test_eight_workers_keep_the_order(
            node.bootstrap_server, make, face, "key", stories.of_key
        )


@each_face
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_second_member_comes_in_the_middle(node: KafkaNode, face: str, strategy: str) -> None:
    with workshops() as make:
        stories.test_a_second_member_comes_in_the_middle_and_nothing_is_left_out(
            node.bootstrap_server, make, face, strategy, "partition", stories.of_partition
        )


@each_face
def test_dead_letters(node: KafkaNode, face: str) -> None:
    with workshops() as make:
        failures.test_what_fails_is_tried_again_and_then_put_into_the_dead_letter_topic(
            node.bootstrap_server, make, face
        )
