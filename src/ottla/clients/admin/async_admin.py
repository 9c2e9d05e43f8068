"""The asyncio admin client: `await admin.topics.create(…)`."""

from collections.abc import Mapping
from typing import Any, Self

from ottla.clients.admin.admin_cluster import ClusterAdmin
from ottla.clients.admin.admin_configs import ConfigAdmin
from ottla.clients.admin.admin_groups import GroupAdmin
from ottla.clients.admin.admin_offsets import OffsetAdmin
from ottla.clients.admin.admin_partitions import PartitionAdmin
from ottla.clients.admin.admin_producers import ProducerAdmin
from ottla.clients.admin.admin_topics import TopicAdmin
from ottla.clients.admin.admin_transactions import TransactionAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.cluster.unclosed_warnings import watch
from ottla.clients.config.settings import read_client_settings
from ottla.clients.threads.not_picklable import NotPicklable
from ottla.runtime.randomness import SystemRandomness


class AsyncAdmin(NotPicklable):
    """Every administrative call, for asyncio. Use it in `async with`, in one event loop.

    Settings have Kafka's names, in a dict or as keywords with underscores. A call about several
    items returns their results by item; if any failed, it raises ItemsFailedError, an ApiError
    with both the results and the failures. Retriable failures are retried until
    default.api.timeout.ms is over. A cluster that cannot be reached is an OSError.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        client_settings = read_client_settings(settings, keywords)
        view = ClusterView(client_settings, randomness=SystemRandomness())
        self._ask_through(view)
        watch(self, "aio.Admin", view, view.abandon)

    @classmethod
    def over(cls, view: ClusterView) -> Self:
        """Make an admin client on an existing view; the caller closes the view."""
        admin = cls.__new__(cls)
        admin._ask_through(view)  # noqa: SLF001 - its own
        return admin

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        self._view.close()

    def metrics(self) -> dict[str, float]:
        """Return the network counts, under Kafka's names."""
        return self._view.counts.by_name()

    def _ask_through(self, view: ClusterView) -> None:
        self._view = view
        self.topics = TopicAdmin(view)
        self.configs = ConfigAdmin(view)
        self.groups = GroupAdmin(view)
        self.offsets = OffsetAdmin(view)
        self.partitions = PartitionAdmin(view)
        self.cluster = ClusterAdmin(view)
        self.transactions = TransactionAdmin(view)
        self.producers = ProducerAdmin(view)
