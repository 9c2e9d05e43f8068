"""Metadata for many topics yields to other requests."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.describing.metadata_response_cache import DescribedTopics
from ottla.broker.describing.metadata_view import ClusterView
from ottla.broker.handlers.metadata import MetadataHandler
from ottla.broker.hosting.hosted_partitions import Partitions
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.time_slices import TimeSlices
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.metadata_building import CLUSTER_ID, uuid_of
from tests.taking_turns import PassingClock, turns_of_others

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 9, 0)
NAMES = [f"topic-{number}" for number in range(100)]


@pytest.mark.parametrize("names", [NAMES, None])
def test_others_have_their_turns_between_topics(names: list[str] | None) -> None:
    partitions = (PartitionImage((1,), (1,), 1),)
    topics = {name: TopicImage(name, uuid_of(n), partitions) for n, name in enumerate(NAMES)}
    image = ClusterImage(CLUSTER_ID, topics=topics)
    view = ClusterView(1, lambda: image, Partitions())
    creation: Any = SimpleNamespace(is_automatic=False)
    unused: Any = None
    handler = MetadataHandler(
        view, creation, unused, DescribedTopics(view), TimeSlices(PassingClock())
    )
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    work = handler.handle(CONTEXT, MetadataRequest(topics=wanted))
    answer, turns = asyncio.run(turns_of_others(work))
    assert len(answer.topics) == 100
    assert turns >= 10
