"""Checks whether records are local: with tiered storage, old records are fetched remotely."""

from ottla.clients.admin.admin_offsets import OffsetAdmin, OffsetSpec
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition


async def are_local(view: ClusterView, name: TopicPartition, offset: int) -> bool:
    """Return whether the leader has the records from an offset onwards on its own disk.

    If not, its fetch responses may be empty while it loads them.
    """
    try:
        found = await OffsetAdmin(view).find({name: OffsetSpec.EARLIEST_LOCAL})
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return True  # it has no remote storage
        raise
    return found[name].offset <= offset
