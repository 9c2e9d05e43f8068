"""The file `quorum-state`: the epoch, its leader if known, and the vote of this replica.

A vote that is granted, and an epoch that is announced, must be in this file, synced, before any
other replica learns of it. The file is JSON. `data_version` 0 belongs to kraft.version 0 and has
the voters' ids; `data_version` 1 belongs to kraft.version 1 and has the directory id of the vote.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.model.identifiers import uuid_from_text, uuid_to_text
from ottla.raft.voters import NO_DIRECTORY, ReplicaKey

QUORUM_STATE_FILE: Final = "quorum-state"
QUORUM_STATE_BYTES_MAX: Final = 1 << 20
"""A larger file was not written by a quorum."""
_NONE: Final = -1
_INT32_MAX: Final = 2**31 - 1


class InvalidQuorumStateError(ValueError):
    """The content of `quorum-state` cannot be used."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The facts of an epoch that must survive a restart."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None

    def __post_init__(self) -> None:
        assert self.epoch >= 0, self.epoch


def quorum_state_bytes(
    state: ElectionState, kraft_version: int, voter_ids: Sequence[int] = ()
) -> bytes:
    """Return the content of the file; the voters are written with kraft.version 0 alone."""
    leader_id = _NONE if state.leader_id is None else state.leader_id
    voted_id = _NONE if state.voted is None else state.voted.id
    content: dict[str, Any]
    if kraft_version == 0:
        content = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        directory_id = NO_DIRECTORY if state.voted is None else state.voted.directory_id
        content = {
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_to_text(directory_id),
            "data_version": 1,
        }
    return json.dumps(content, separators=(",", ":")).encode()


def quorum_state_of(content: bytes) -> ElectionState:
    """Read the file's content; InvalidQuorumStateError names the fault."""
    if len(content) > QUORUM_STATE_BYTES_MAX:
        raise InvalidQuorumStateError(f"{QUORUM_STATE_FILE} has {len(content)} bytes")
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidQuorumStateError(f"{QUORUM_STATE_FILE} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidQuorumStateError(f"{QUORUM_STATE_FILE} is not a JSON object")
    version = _number(fields, "data_version", 0, _INT32_MAX)
    if version > 1:
        raise InvalidQuorumStateError(
            f"{QUORUM_STATE_FILE} has data_version {version}: a newer version of the software"
            " wrote it"
        )
    voted_id = _number(fields, "votedId", _NONE, _INT32_MAX)
    leader_id = _number(fields, "leaderId", _NONE, _INT32_MAX)
    directory_id = _directory(fields) if version == 1 else NO_DIRECTORY
    return ElectionState(
        epoch=_number(fields, "leaderEpoch", 0, _INT32_MAX),
        leader_id=None if leader_id == _NONE else leader_id,
        voted=None if voted_id == _NONE else ReplicaKey(voted_id, directory_id),
    )


def _number(fields: dict[str, Any], name: str, least: int, greatest: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
        raise InvalidQuorumStateError(f"{QUORUM_STATE_FILE} has {name} {value!r}")
    return value


def _directory(fields: dict[str, Any]) -> bytes:
    text = fields.get("votedDirectoryId")
    try:
        return uuid_from_text(text if isinstance(text, str) else "")
    except ValueError as error:
        raise InvalidQuorumStateError(
            f"{QUORUM_STATE_FILE} has votedDirectoryId {text!r}"
        ) from error
