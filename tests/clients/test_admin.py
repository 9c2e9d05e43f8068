"""The admin client itself: both facades, its error handling, its settings, and closing it."""

import asyncio
import inspect
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest

import ottla
from ottla import Admin, ApiError, ErrorCode, ItemsFailedError, OffsetSpec, TopicPartition, aio
from ottla.clients.admin import async_admin
from ottla.clients.admin.admin import SyncFacade
from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.errors import ClientClosedError, NoResponseError, UnreachableError
from ottla.testing import Broker

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("facade", SyncFacade.__subclasses__())
def test_every_asynchronous_call_is_a_synchronous_one_with_the_same_arguments(
    facade: type[SyncFacade[Any]],
) -> None:
    ((behind,),) = map(get_args, facade.__orig_bases__)  # type: ignore[attr-defined]
    calls = {
        name: call
        for name, call in vars(behind).items()
        if inspect.iscoroutinefunction(call) and not name.startswith("_")
    }
    assert calls
    for name, call in calls.items():
        ours = getattr(facade, name)
        assert not inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours) == inspect.signature(call)
        assert inspect.getdoc(ours) == inspect.getdoc(call)


def test_both_faces_have_the_same_nouns() -> None:
    with Admin(bootstrap_servers=NOWHERE) as admin:
        ours = {name for name in vars(admin) if not name.startswith("_")}
    theirs = {name for name in vars(aio.Admin(bootstrap_servers=NOWHERE)) if name[0] != "_"}
    assert ours == theirs
    assert aio.Admin is async_admin.AsyncAdmin


def test_the_page_about_it_has_every_call() -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin.md").read_text(encoding="utf-8")
    with Admin(bootstrap_servers=NOWHERE) as admin:
        calls = {
            f"`{noun}.{name}`"
            for noun, facade in vars(admin).items()
            if isinstance(facade, SyncFacade)
            for name in vars(type(facade))
            if not name.startswith("_")
        }
    assert {call for call in calls if call not in page} == set()


def test_asyncio_has_the_same_calls(story_servers: str, topic: str) -> None:
    async def story() -> int:
        async with aio.Admin(bootstrap_servers=story_servers) as admin:
            await admin.topics.create(topic, partitions=3)
            ends = await admin.offsets.ends([TopicPartition(topic, 2)])
            assert ends == {TopicPartition(topic, 2): (0, 0)}
            return len((await admin.topics.describe(topic))[topic].partitions)

    assert asyncio.run(story()) == 3


def test_what_was_done_is_not_lost_where_something_else_failed(
    story_servers: str, topic: str
) -> None:
    names = [f"{topic}-1", "no/name", f"{topic}-2", f"{topic}-1"]
    with Admin(bootstrap_servers=story_servers) as admin:
        with pytest.raises(ItemsFailedError) as failure:
            admin.topics.create(names, partitions=2)
        assert list(failure.value.done) == [f"{topic}-1", f"{topic}-2"]
        assert failure.value.done[f"{topic}-2"].partitions == 2
        assert {name: error.code for name, error in failure.value.failed.items()} == {
            "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION
        }
        assert failure.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "no/name" in str(failure.value)
        assert isinstance(failure.value, ApiError)
        with pytest.raises(ItemsFailedError, match="and 1 more failed"):
            admin.topics.create([f"{topic}-1", f"{topic}-2"])
        assert {f"{topic}-1", f"{topic}-2"} <= {row.name for row in admin.topics.list()}


def test_no_items_are_no_question() -> None:
    with Admin(bootstrap_servers=NOWHERE) as admin:
        assert admin.topics.create([]) == {}
        assert admin.offsets.find({}) == {}
        assert admin.groups.describe([]) == {}


def test_settings_have_kafkas_names() -> None:
    with pytest.raises(InvalidClientSettingError, match=r"request\.timeout\.ms"):
        Admin(bootstrap_servers=NOWHERE, request_timeout=3)
    with pytest.raises(InvalidClientSettingError, match=r"bootstrap\.servers"):
        aio.Admin()
    Admin({"bootstrap.servers": NOWHERE, "client.id": "me"}, request_timeout_ms=500).close()


def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    with Admin(bootstrap_servers=NOWHERE) as admin:
        with pytest.raises(UnreachableError, match=r"nothing listens on 127\.0\.0\.1:1"):
            admin.topics.create("letters")
        with pytest.raises(OSError, match="nothing listens"):
            admin.topics.list()


def test_a_closed_admin_says_so_and_can_be_closed_again(story_servers: str) -> None:
    admin = Admin(bootstrap_servers=story_servers)
    assert admin.cluster.describe().brokers
    admin.close()
    admin.close()
    with pytest.raises(ClientClosedError):
        admin.cluster.describe()
    assert "ottla-admin" not in {thread.name for thread in threading.enumerate()}


def test_threads_share_one_admin(story_servers: str, topic: str) -> None:
    with Admin(bootstrap_servers=story_servers) as admin, ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: admin.topics.create(f"{topic}-{n}"), range(24)))
    assert len({row.topic_id for answer in made for row in answer.values()}) == 24


def test_a_wrong_argument_is_an_error_of_the_caller(story_servers: str) -> None:
    with Admin(bootstrap_servers=story_servers) as admin, pytest.raises(TypeError):
        admin.topics.create("letters", partition=3)  # type: ignore[call-arg]


def test_a_broker_that_comes_back_in_time_is_asked_again(topic: str) -> None:
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.topics.create(topic)
        broker.restart()
        assert topic in admin.topics.describe(topic)
        broker.restart()
        assert admin.offsets.ends([TopicPartition(topic, 0)])


def test_a_call_without_a_response_times_out(topic: str) -> None:
    with (
        Broker() as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=2_000) as admin,
    ):
        admin.topics.create(topic)
        broker.stop()
        with pytest.raises(OSError, match=str(broker.port)):
            admin.topics.describe(topic)
        with pytest.raises((OSError, ItemsFailedError), match=str(broker.port)):
            admin.offsets.find({TopicPartition(topic, 0): OffsetSpec.LATEST})


def test_a_broker_that_takes_calls_and_says_nothing_is_not_waited_for() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Admin(
            bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", default_api_timeout_ms=200
        ) as admin,
    ):
        with pytest.raises(NoResponseError, match=r"not over within 0\.2 s"):
            admin.topics.list()
        with pytest.raises(NoResponseError, match=r"not over within 0\.2 s"):
            admin.topics.create("letters")


def test_importing_the_package_imports_no_client() -> None:
    code = "import sys, ottla; assert not [n for n in sys.modules if n.startswith('ottla.')]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with pytest.raises(AttributeError, match="Nothing"):
        ottla.Nothing  # noqa: B018
