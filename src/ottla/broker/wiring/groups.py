"""The APIs of groups."""

from ottla.broker.describing.leader_hints import CurrentLeaders
from ottla.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from ottla.broker.requests.routes import Route
from ottla.broker.wiring.services import Services
from ottla.wire.api_key import ApiKey


def group_routes(services: Services) -> dict[int, Route]:
    """Create the handlers of groups and their offsets."""
    coordinator = services.coordinator
    leaders = CurrentLeaders(lambda: services.view.image)
    find = find_coordinator.FindCoordinatorHandler(
        leaders,
        {
            find_coordinator.GROUP: coordinator,
            find_coordinator.TRANSACTION: services.transactions.coordinator,
        },
    )
    join = join_group.JoinGroupHandler(coordinator, services.randomness)
    sync = sync_group.SyncGroupHandler(coordinator)
    beat = heartbeat.HeartbeatHandler(coordinator)
    leave = leave_group.LeaveGroupHandler(coordinator)
    commit = offset_commit.OffsetCommitHandler(coordinator, services.store)
    pending = txn_offset_commit.TxnOffsetCommitHandler(
        coordinator, services.store, services.verification
    )
    offsets = offset_fetch.OffsetFetchHandler(coordinator, services.store, services.slices)
    forget = offset_delete.OffsetDeleteHandler(coordinator, services.store)
    list_ = list_groups.ListGroupsHandler(coordinator)
    describe = describe_groups.DescribeGroupsHandler(coordinator)
    delete = delete_groups.DeleteGroupsHandler(coordinator)
    return {
        ApiKey.OFFSET_COMMIT: Route(offset_commit.VERSIONS, commit.handle),
        ApiKey.TXN_OFFSET_COMMIT: Route(txn_offset_commit.VERSIONS, pending.handle),
        ApiKey.OFFSET_FETCH: Route(offset_fetch.VERSIONS, offsets.handle),
        ApiKey.FIND_COORDINATOR: Route(find_coordinator.VERSIONS, find.handle),
        ApiKey.JOIN_GROUP: Route(join_group.VERSIONS, join.handle),
        ApiKey.HEARTBEAT: Route(heartbeat.VERSIONS, beat.handle),
        ApiKey.LEAVE_GROUP: Route(leave_group.VERSIONS, leave.handle),
        ApiKey.SYNC_GROUP: Route(sync_group.VERSIONS, sync.handle),
        ApiKey.DESCRIBE_GROUPS: Route(describe_groups.VERSIONS, describe.handle),
        ApiKey.LIST_GROUPS: Route(list_groups.VERSIONS, list_.handle),
        ApiKey.OFFSET_DELETE: Route(offset_delete.VERSIONS, forget.handle),
        ApiKey.DELETE_GROUPS: Route(delete_groups.VERSIONS, delete.handle),
    }
