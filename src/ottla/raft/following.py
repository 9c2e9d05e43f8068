"""A follower, and a replica in search of a leader: they fetch the log, or a snapshot of it.

A fetch acknowledges everything before its offset. So a replica that is, or may become, a voter
sends the next fetch when the log is synced to its end. An observer that never votes need not sync.
"""

from typing import Any, Final

from ottla.model.error_code import ErrorCode
from ottla.raft.actions import InstallSnapshot, Node, WriteSnapshot
from ottla.raft.core import LogDivergedError, QuorumCore, Sent
from ottla.raft.log_outline import EpochEnd
from ottla.raft.messages import (
    fetch_request,
    fetch_snapshot_request,
    leader_of,
    partition_of,
)
from ottla.raft.snapshots import SnapshotId, SnapshotStart
from ottla.raft.states import Download, Follower
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch, batches

SEARCH_MS: Final = 100
"""The pause between two requests to bootstrap servers."""


class Following:
    """The part of a quorum machine that fetches."""

    def __init__(self, core: QuorumCore) -> None:
        self._core = core
        self._search_at_ms = 0
        self.installing: SnapshotId | None = None
        """The snapshot that the driver has been told to install."""

    # -- polls ----------------------------------------------------------------------------------

    def search(self) -> None:
        """Ask a bootstrap server for the leader, by a Fetch."""
        core = self._core
        if not self._is_synced() or not core.is_due(self._search_at_ms):
            return
        self._search_at_ms = core.now_ms + SEARCH_MS
        core.wake(self._search_at_ms)
        node = core.next_bootstrap_server()
        if node is not None and core.can_send(node, FetchRequest):
            self._send_fetch(node, 0)

    def poll(self, state: Follower) -> None:
        """Fetch from the leader; after the fetch timeout, look for another leader."""
        core = self._core
        is_expired = core.is_due(state.deadline_ms)
        if is_expired and core.may_stand:
            core.become_prospective()
            return
        if not self._is_synced():
            return
        if is_expired:
            # The leader may be back at its address, or a bootstrap server may know another leader.
            self.search()
        if state.download is not None:
            self._fetch_snapshot(state, state.download)
        elif core.can_send(state.leader, FetchRequest):
            self._send_fetch(state.leader, core.settings.fetch_wait_ms)

    def _is_synced(self) -> bool:
        core = self._core
        if not core.identity.is_controller or core.synced_end == core.outline.end_offset:
            return True
        core.sync()
        return False

    def _send_fetch(self, node: Node, wait_ms: int) -> None:
        core = self._core
        request = fetch_request(
            core.identity,
            epoch=core.epoch,
            log_end=core.outline.end,
            log_start_offset=core.outline.start_offset,
            high_watermark=core.high_watermark,
            wait_ms=wait_ms,
            bytes_max=core.settings.fetch_bytes_max,
        )
        core.send(node, request)

    def _fetch_snapshot(self, state: Follower, download: Download) -> None:
        core = self._core
        if core.can_send(state.leader, FetchSnapshotRequest):
            request = fetch_snapshot_request(
                core.identity,
                core.epoch,
                download.snapshot_id,
                download.position,
                core.settings.snapshot_bytes_max,
            )
            core.send(state.leader, request)

    # -- Fetch ----------------------------------------------------------------------------------

    def on_fetch_response(self, sent: Sent, response: FetchResponse) -> None:
        """Append the records, cut the log, or begin to fetch a snapshot."""
        core = self._core
        partition = self._leaders_word(sent, response)
        state, request = core.state, sent.request
        if partition is None or not isinstance(state, Follower):
            return
        assert isinstance(request, FetchRequest), request
        asked = request.topics[0].partitions[0]
        if (asked.last_fetched_epoch, asked.fetch_offset) != core.outline.end:
            return  # The log was cut or replaced after this fetch was sent.
        if (diverging := partition.diverging_epoch) is not None and diverging.epoch >= 0:
            self._cut(sent, EpochEnd(diverging.epoch, diverging.end_offset))
        elif (snapshot := partition.snapshot_id) is not None and snapshot.epoch >= 0:
            self._begin_download(state, SnapshotId(snapshot.end_offset, snapshot.epoch))
        else:
            self._append(sent, partition.records)
            core.commit(min(partition.high_watermark, core.outline.end_offset))

    def _leaders_word(self, sent: Sent, response: Any) -> Any | None:
        """Return the partition of a response of the leader; None if it is no such response."""
        core = self._core
        partition = partition_of(response, core.identity)
        if response.error_code or partition is None:
            core.back_off(sent)
            return None
        epoch, leader_id, leader = leader_of(response, partition)
        core.observe(epoch, leader_id, leader)
        state = core.state
        if partition.error_code != ErrorCode.NONE:
            core.back_off(sent)
            if isinstance(state, Follower):
                if isinstance(sent.request, FetchSnapshotRequest):
                    state.download = None
                if leader is not None and leader_id == state.leader_id and epoch == core.epoch:
                    state.leader = leader
            return None
        if not isinstance(state, Follower) or sent.epoch != core.epoch:
            return None
        if epoch != core.epoch or leader_id != state.leader_id:
            return None
        state.deadline_ms = core.now_ms + core.settings.fetch_timeout_ms
        state.has_fetched, state.is_alarmed = True, False
        return partition

    def _cut(self, sent: Sent, diverging: EpochEnd) -> None:
        core = self._core
        own = core.outline.end_of_epoch(diverging.epoch)
        end_offset = min(diverging.end_offset, own.end_offset)
        if end_offset >= core.outline.end_offset:
            core.back_off(sent)  # There is nothing to cut: the response contradicts itself.
            return
        core.truncate(end_offset)

    def _append(self, sent: Sent, records: Any) -> None:
        core = self._core
        try:
            for batch in batches(memoryview(records or b"")):
                batch.check_crc()
                if not self._is_next(batch):
                    core.back_off(sent)
                    break
                core.append(batch)
        except ProtocolError:
            core.back_off(sent)
        if core.identity.is_controller:
            core.sync()

    def _is_next(self, batch: RecordBatch) -> bool:
        """Whether a batch may follow the end of the log.

        A batch of an epoch above this replica's was read while the sender's log was cut: it is not
        from the leader that this replica follows.
        """
        core = self._core
        is_in_order = batch.base_offset == core.outline.end_offset
        return is_in_order and core.outline.last_epoch <= batch.partition_leader_epoch <= core.epoch

    # -- FetchSnapshot --------------------------------------------------------------------------

    def _begin_download(self, state: Follower, snapshot_id: SnapshotId) -> None:
        core = self._core
        if snapshot_id.end_offset < core.high_watermark:
            raise LogDivergedError(
                f"the leader offers a snapshot that ends at offset {snapshot_id.end_offset}, but"
                f" this log is committed up to {core.high_watermark}"
            )
        state.download = Download(snapshot_id)

    def on_snapshot_response(self, sent: Sent, response: FetchSnapshotResponse) -> None:
        """Write a piece of the snapshot; install it after the last piece."""
        core = self._core
        piece = self._leaders_word(sent, response)
        state = core.state
        if piece is None or not isinstance(state, Follower) or state.download is None:
            return
        download = state.download
        snapshot_id = SnapshotId(piece.snapshot_id.end_offset, piece.snapshot_id.epoch)
        content = bytes(piece.unaligned_records or b"")
        is_next = (snapshot_id, piece.position) == (download.snapshot_id, download.position)
        if not is_next or not content or download.position + len(content) > piece.size:
            core.back_off(sent)
            return
        core.actions.append(WriteSnapshot(snapshot_id, download.position, content))
        download.position += len(content)
        if download.position == piece.size:
            state.download = None
            self.installing = snapshot_id
            core.outline.replace_by(snapshot_id)
            core.begin_log_at_snapshot()
            core.actions.append(InstallSnapshot(snapshot_id))

    def on_snapshot_installed(self, snapshot_id: SnapshotId, start: SnapshotStart) -> None:
        """Go on at the end of the installed snapshot."""
        core = self._core
        assert snapshot_id == self.installing, (snapshot_id, self.installing)
        self.installing = None
        # With kraft.version 0 the voters come from the settings, and never change.
        voters = core.history.voter_sets[0][1] if start.voters is None else start.voters
        core.history.replace_by(snapshot_id, voters, start.kraft_version)
        core.commit(snapshot_id.end_offset)
