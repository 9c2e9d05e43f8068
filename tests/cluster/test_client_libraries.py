"""Applications with any client library see no error when leaders and coordinators die."""

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ottla.testing.cluster import Cluster
from tests.cluster.applications import APPLICATIONS
from tests.cluster.load import read_all, say
from tests.cluster.watching import Watcher

ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@pytest.fixture(autouse=True)
def _leaves_no_socket_behind() -> Iterator[None]:
    """kafka-python forgets to close sockets that could not connect."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_applications_are_told_nothing_when_every_broker_dies_once(
    cluster: Cluster, watcher: Watcher
) -> None:
    names = [f"of-{application.__name__.lower()}" for application in APPLICATIONS]
    for name in names:
        watcher.create_topic(name, ASSIGNMENT)
    with ExitStack() as stack:
        applications = [
            stack.enter_context(application(cluster.bootstrap_servers, name, len(ASSIGNMENT)))
            for application, name in zip(APPLICATIONS, names, strict=True)
        ]
        for application in applications:
            application.goes_on()
        for broker in cluster.brokers.values():
            assert not watcher.leads_nothing(broker.id)
            broker.kill()
            watcher.wait_until(lambda: watcher.leads_nothing(broker.id))
            for application in applications:
                application.goes_on()
            broker.start()
            watcher.wait_until_whole()
    for application in applications:
        messages = read_all(cluster.bootstrap_servers, application.topic)
        found = [message.value() for message in messages]
        lost = set(application.written) - set(found)
        doubled = len(found) - len(set(found))
        say(f"{application.topic}: {len(application.written)} written, {len(found)} there")
        assert not lost
        assert not doubled
