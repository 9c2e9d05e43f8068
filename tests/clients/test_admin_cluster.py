"""The cluster by the admin client: brokers, features and the quorum."""

from collections.abc import Iterator

import pytest

from ottla import Admin, ApiError, ErrorCode
from ottla.wire.api_key import ApiKey


@pytest.fixture
def admin(story_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=story_servers) as admin:
        yield admin


def test_the_cluster_is_described(admin: Admin, story_servers: str) -> None:
    for include_fenced in (False, True):
        found = admin.cluster.describe(include_fenced=include_fenced)
        (broker,) = found.brokers
        assert f"{broker.host}:{broker.port}" == story_servers
        assert found.controller_id == broker.broker_id
        assert (found.cluster_id, broker.is_fenced) != ("", True)


def test_the_apis_of_a_broker_are_told(admin: Admin) -> None:
    first, last = admin.cluster.versions_by_api()[ApiKey.METADATA]
    assert first < last


def test_features_are_told_and_changed(admin: Admin) -> None:
    found = admin.cluster.features()
    assert found.finalized
    name, level = next(iter(found.finalized.items()))
    assert found.supported[name].first <= level <= found.supported[name].last
    admin.cluster.update_features({name: level}, validate_only=True)
    with pytest.raises(ApiError, match=name) as failure:
        admin.cluster.update_features({name: 999})
    assert failure.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert admin.cluster.features() == found


def test_a_broker_that_keeps_the_metadata_itself_is_a_quorum_of_one(admin: Admin) -> None:
    found = admin.cluster.quorum()
    (voter,) = found.voters
    assert (voter.replica_id, found.observers) == (found.leader_id, ())
    assert voter.end_offset == found.high_watermark > 0


def test_a_broker_that_was_never_there_cannot_be_forgotten(admin: Admin) -> None:
    with pytest.raises(ApiError) as failure:
        admin.cluster.unregister_broker(4711)
    assert failure.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
