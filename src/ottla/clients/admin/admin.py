"""The synchronous admin client: `admin.topics.create(…)`.

A facade of the asynchronous client, without writing every call twice: it lists the calls, and each
keeps the arguments, the types and the docstring of the asynchronous method.
"""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ottla.clients.admin.admin_cluster import ClusterAdmin
from ottla.clients.admin.admin_configs import ConfigAdmin
from ottla.clients.admin.admin_groups import GroupAdmin
from ottla.clients.admin.admin_offsets import OffsetAdmin
from ottla.clients.admin.admin_partitions import PartitionAdmin
from ottla.clients.admin.admin_producers import ProducerAdmin
from ottla.clients.admin.admin_topics import TopicAdmin
from ottla.clients.admin.admin_transactions import TransactionAdmin
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.cluster.unclosed_warnings import watch
from ottla.clients.config.settings import read_client_settings
from ottla.clients.errors import ClientClosedError
from ottla.clients.threads.loop_thread import LoopThread
from ottla.clients.threads.not_picklable import NotPicklable
from ottla.runtime.randomness import SystemRandomness

N = TypeVar("N")
P = ParamSpec("P")
R = TypeVar("R")


class SyncFacade(Generic[N]):
    """An asynchronous object, with the thread that runs its calls."""

    def __init__(self, thread: LoopThread, behind: N) -> None:
        self._thread = thread
        self._behind = behind

    def _wait(self, call: Callable[[N], Coroutine[Any, Any, R]]) -> R:
        return self._thread.run(call(self._behind))


def blocking(
    method: Callable[Concatenate[N, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncFacade[N], P], R]:
    """Make a method of a facade: it waits for the result of the asynchronous method."""

    @wraps(method)
    def wait(facade: SyncFacade[N], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return facade._wait(lambda behind: method(behind, *args, **kwargs))  # noqa: SLF001 - its own

    return wait


class Topics(SyncFacade[TopicAdmin]):
    """Topics. Each call takes one name or several, and returns results by name."""

    list = blocking(TopicAdmin.list)
    describe = blocking(TopicAdmin.describe)
    create = blocking(TopicAdmin.create)
    create_partitions = blocking(TopicAdmin.create_partitions)
    delete = blocking(TopicAdmin.delete)


class Configs(SyncFacade[ConfigAdmin]):
    """Settings. The settings of a single broker are read from that broker."""

    describe = blocking(ConfigAdmin.describe)
    alter = blocking(ConfigAdmin.alter)
    replace = blocking(ConfigAdmin.replace)
    list_resources = blocking(ConfigAdmin.list_resources)


class Groups(SyncFacade[GroupAdmin]):
    """Groups. Requests go to each group's coordinator."""

    list = blocking(GroupAdmin.list)
    describe = blocking(GroupAdmin.describe)
    delete = blocking(GroupAdmin.delete)
    remove_members = blocking(GroupAdmin.remove_members)
    committed = blocking(GroupAdmin.committed)
    commit = blocking(GroupAdmin.commit)
    delete_offsets = blocking(GroupAdmin.delete_offsets)


class Offsets(SyncFacade[OffsetAdmin]):
    """Offsets. Requests go to the leaders, and are retried after leader changes."""

    find = blocking(OffsetAdmin.find)
    ends = blocking(OffsetAdmin.ends)
    delete_before = blocking(OffsetAdmin.delete_before)


class Partitions(SyncFacade[PartitionAdmin]):
    """Partitions: replicas and leaders."""

    describe = blocking(PartitionAdmin.describe)
    reassign = blocking(PartitionAdmin.reassign)
    reassignments = blocking(PartitionAdmin.reassignments)
    elect = blocking(PartitionAdmin.elect)
    move_to_log_dirs = blocking(PartitionAdmin.move_to_log_dirs)


class Cluster(SyncFacade[ClusterAdmin]):
    """Brokers and the cluster."""

    describe = blocking(ClusterAdmin.describe)
    unregister_broker = blocking(ClusterAdmin.unregister_broker)
    log_dirs = blocking(ClusterAdmin.log_dirs)
    versions_by_api = blocking(ClusterAdmin.versions_by_api)
    features = blocking(ClusterAdmin.features)
    update_features = blocking(ClusterAdmin.update_features)
    quorum = blocking(ClusterAdmin.quorum)
    add_voter = blocking(ClusterAdmin.add_voter)
    remove_voter = blocking(ClusterAdmin.remove_voter)


class Transactions(SyncFacade[TransactionAdmin]):
    """Transactions. Requests go to their coordinators."""

    list = blocking(TransactionAdmin.list)
    describe = blocking(TransactionAdmin.describe)
    fence = blocking(TransactionAdmin.fence)
    terminate = blocking(TransactionAdmin.terminate)
    hanging = blocking(TransactionAdmin.hanging)


class Producers(SyncFacade[ProducerAdmin]):
    """Producers. Requests go to the leaders, and are retried after leader changes."""

    describe = blocking(ProducerAdmin.describe)
    open_since = blocking(ProducerAdmin.open_since)
    abort = blocking(ProducerAdmin.abort)


class Admin(NotPicklable):
    """Every administrative call. Use it in `with`, from any number of threads.

    Settings have Kafka's names, in a dict or as keywords with underscores. A call about several
    items returns their results by item; if any failed, it raises ItemsFailedError, an ApiError
    with both the results and the failures. Retriable failures are retried until
    default.api.timeout.ms is over. A cluster that cannot be reached is an OSError.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        client_settings = read_client_settings(settings, keywords)
        view = ClusterView(client_settings, randomness=SystemRandomness())
        self._core = AsyncAdmin.over(view)
        self._thread = thread = LoopThread("ottla-admin")
        look = watch(thread, "Admin", view, None)  # it ends by itself
        thread.call_at_end(look, view.close)
        self.topics = Topics(thread, self._core.topics)
        self.configs = Configs(thread, self._core.configs)
        self.groups = Groups(thread, self._core.groups)
        self.offsets = Offsets(thread, self._core.offsets)
        self.partitions = Partitions(thread, self._core.partitions)
        self.cluster = Cluster(thread, self._core.cluster)
        self.transactions = Transactions(thread, self._core.transactions)
        self.producers = Producers(thread, self._core.producers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metrics(self) -> dict[str, float]:
        """Return the network counts, under Kafka's names."""
        return self._core.metrics()

    def close(self) -> None:
        """Close all connections; calls in other threads fail."""
        with suppress(ClientClosedError):  # closed already
            self._thread.run(self._core.close())
        self._thread.close()
