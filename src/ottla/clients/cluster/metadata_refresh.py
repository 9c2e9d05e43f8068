"""Refreshes the metadata of a client's topics before it is too old."""

from collections.abc import Callable, Collection
from contextlib import suppress

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoAnswerError, UnreachableError
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.wire.messages.metadata import MetadataResponseTopic


async def keep_fresh(
    view: ClusterView,
    topics: Callable[[], Collection[str]],
    take: Callable[[list[MetadataResponseTopic]], None] | None = None,
) -> None:
    """Refresh topics when their metadata is as old as metadata.max.age.ms.

    This is the background task of a client that never waits for metadata; it runs until the view is
    closed or the task is cancelled. `topics` is called each time; `take` gets the new metadata, for
    callers that depend on it, for instance on the number of partitions.
    """
    age_ms_max = view.settings.metadata_max_age_ms
    while not view.is_closed:
        wanted = [name for name in topics() if view.known_topic(name) is not None]
        left_ms = age_ms_max - view.age_ms(wanted) if wanted else age_ms_max
        if left_ms > 0:
            await pause(left_ms)
            continue
        with suppress(ApiError, UnreachableError, NoAnswerError):
            found = await view.refresh(wanted)
            if take is not None:
                take(found)
        await pause(view.settings.retry_backoff_max_ms)
