"""DescribeQuorum v0-v2: the leader, the voters and the observers, and how far each has got.

The leader alone answers. Another replica refuses with NOT_LEADER_OR_FOLLOWER and names the leader
that it knows, with its address; Kafka's replicas name none. Observers that have not fetched for
five minutes are left out, as in Kafka.
"""

from typing import Any, Final

from ottla.model.error_code import ErrorCode
from ottla.raft.core import QuorumCore
from ottla.raft.messages import NO_ID, NO_OFFSET, PARTITION, partition_of
from ottla.raft.states import Leader, Progress
from ottla.raft.voters import ReplicaKey, Voter
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    Listener,
    Node,
    ReplicaState,
)

OBSERVER_SESSION_MS: Final = 300_000
"""An observer that has not fetched for this time is not described."""
_NO_TIME: Final = -1


class Describing:
    """The part of a quorum machine that describes the quorum."""

    def __init__(self, core: QuorumCore) -> None:
        self._core = core

    def on_describe(self, token: object, request: DescribeQuorumRequest) -> None:
        """Describe the quorum of the metadata partition; no other partition has one."""
        core, state = self._core, self._core.state
        if partition_of(request, core.identity) is None:
            core.respond(token, _unknown(request))
            return
        partition = DescribeQuorumResponsePartition(
            partition_index=PARTITION,
            leader_id=NO_ID if core.election.leader_id is None else core.election.leader_id,
            leader_epoch=core.epoch,
            high_watermark=NO_OFFSET,
        )
        if isinstance(state, Leader):
            nodes = list(core.voters.voters)
            self._describe(state, partition)
        else:
            known = core.voters.voter(partition.leader_id)
            nodes = [] if known is None else [known]
            partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            knows = "" if core.election.leader_id is not None else ", and knows no leader of it"
            partition.error_message = f"controller {core.key.id} does not lead the quorum{knows}"
        topic = DescribeQuorumResponseTopic(
            topic_name=core.identity.topic_name, partitions=[partition]
        )
        response = DescribeQuorumResponse(topics=[topic], nodes=[_node(one) for one in nodes])
        core.respond(token, response)

    def _describe(self, state: Leader, partition: DescribeQuorumResponsePartition) -> None:
        core = self._core
        if state.high_watermark is not None:
            partition.high_watermark = state.high_watermark
        partition.current_voters = [
            self._replica(key, state.replicas.get(key)) for key in core.voters.keys
        ]
        earliest_ms = core.now_ms - OBSERVER_SESSION_MS
        observers = {
            key: progress
            for key, progress in state.replicas.items()
            if not core.voters.has(key) and (progress.fetched_at_ms or 0) >= earliest_ms
        }
        if not core.is_voter:
            observers[core.key] = Progress()
        partition.observers = [self._replica(key, observers[key]) for key in sorted(observers)]

    def _replica(self, key: ReplicaKey, progress: Progress | None) -> ReplicaState:
        core = self._core
        found = ReplicaState(
            replica_id=key.id, replica_directory_id=key.directory_id, log_end_offset=NO_OFFSET
        )
        if key in {core.key, core.own_voter_key}:
            found.log_end_offset = core.outline.end_offset
            found.last_fetch_timestamp = found.last_caught_up_timestamp = self._wall_ms(core.now_ms)
        elif progress is not None:
            found.log_end_offset = progress.end_offset
            found.last_fetch_timestamp = self._wall_ms(progress.fetched_at_ms)
            found.last_caught_up_timestamp = self._wall_ms(progress.caught_up_at_ms)
        return found

    def _wall_ms(self, at_ms: int | None) -> int:
        return _NO_TIME if at_ms is None else at_ms + self._core.wall_offset_ms


def _node(voter: Voter) -> Node:
    listeners = [Listener(name=one.name, host=one.host, port=one.port) for one in voter.endpoints]
    return Node(node_id=voter.key.id, listeners=listeners)


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Refuse each partition of a request that is not about the metadata partition alone."""

    def refused(wanted: Any) -> DescribeQuorumResponsePartition:
        return DescribeQuorumResponsePartition(
            partition_index=wanted.partition_index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="only the metadata partition has a quorum",
        )

    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponseTopic(
                topic_name=topic.topic_name,
                partitions=[refused(wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
