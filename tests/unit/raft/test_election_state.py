import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.raft.election_state import (
    ElectionState,
    InvalidQuorumStateError,
    quorum_state_bytes,
    quorum_state_of,
)
from ottla.raft.voters import ReplicaKey

IDS = st.integers(0, 2**31 - 1)
KEYS = st.builds(ReplicaKey, IDS, st.binary(min_size=16, max_size=16))
STATES = st.builds(ElectionState, IDS, st.none() | IDS, st.none() | KEYS)


@given(STATES)
def test_a_state_is_read_back(state: ElectionState) -> None:
    assert quorum_state_of(quorum_state_bytes(state, 1)) == state


def test_the_file_of_kraft_version_1_is_kafkas() -> None:
    state = ElectionState(5, 3, ReplicaKey(3, bytes(16)))
    assert json.loads(quorum_state_bytes(state, 1)) == {
        "leaderId": 3,
        "leaderEpoch": 5,
        "votedId": 3,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }


def test_the_file_of_kraft_version_0_has_the_voters_and_no_directory() -> None:
    written = quorum_state_bytes(ElectionState(5, None, ReplicaKey(3, bytes(range(16)))), 0, [1, 3])
    assert json.loads(written) == {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": 5,
        "votedId": 3,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 3}],
        "data_version": 0,
    }
    assert quorum_state_of(written) == ElectionState(5, None, ReplicaKey(3))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"leaderId":3,"leade', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "data_version None"),
        (b'{"data_version":2}', "newer version"),
        (b'{"data_version":1,"votedId":true}', "votedId True"),
        (b'{"data_version":1,"votedId":-1,"leaderId":-2}', "leaderId -2"),
        (
            b'{"data_version":1,"votedId":1,"leaderId":-1,"leaderEpoch":1,"votedDirectoryId":"x"}',
            "votedDirectoryId 'x'",
        ),
        (b" " * (2 << 20), "bytes"),
    ],
)
def test_a_damaged_file_ends_in_one_error(content: bytes, fault: str) -> None:
    with pytest.raises(InvalidQuorumStateError, match=fault):
        quorum_state_of(content)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_state_or_an_error(content: bytes) -> None:
    try:
        state = quorum_state_of(content)
    except InvalidQuorumStateError:
        return
    assert state.epoch >= 0
