"""Registrations and heartbeats, as the active controller of a quorum answers them."""

from ottla.broker.handlers.api_versions import ApiVersionsHandler
from ottla.broker.handlers.broker_heartbeat import QuorumHeartbeatHandler
from ottla.broker.handlers.broker_registration import BrokerRegistrationHandler
from ottla.broker.handlers.controller_registration import ControllerRegistrationHandler
from ottla.broker.handlers.update_features import UpdateFeaturesHandler
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.features import CLAIMED_LEVELS
from ottla.model.error_code import ErrorCode
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages import controller_registration
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.controller_registration import ControllerRegistrationRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.metadata_building import FixedClock, tell, uuid_of
from tests.replica_twin import ReplicaTwin
from tests.unit.machines.controller.quorum_cluster import registration

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 2, 0)


def test_a_broker_registers_serves_and_stops() -> None:
    async def live(store: EmbeddedMetadataStore) -> None:
        clock = FixedClock()
        register = BrokerRegistrationHandler(store, clock, lambda: 1)
        beat = QuorumHeartbeatHandler(store, clock)
        request = registration(5, cluster_id=store.identity.cluster_id)
        answer = await register.handle(CONTEXT, request)
        assert (answer.error_code, answer.broker_epoch) == (0, store.image.end_offset - 1)
        heartbeat = BrokerHeartbeatRequest(broker_id=5, broker_epoch=answer.broker_epoch)
        assert (await beat.handle(CONTEXT, heartbeat)).is_fenced
        heartbeat.current_metadata_offset = answer.broker_epoch
        assert not (await beat.handle(CONTEXT, heartbeat)).is_fenced
        assert store.image.brokers[5].is_active
        again = registration(5, 2, cluster_id=store.identity.cluster_id, log_dirs=[uuid_of(777)])
        refused = await register.handle(CONTEXT, again)
        assert (refused.error_code, refused.broker_epoch) == (
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            -1,
        )
        heartbeat.want_shut_down = True
        assert (await beat.handle(CONTEXT, heartbeat)).should_shut_down
        heartbeat.broker_epoch += 1
        stale = await beat.handle(CONTEXT, heartbeat)
        assert stale.error_code is ErrorCode.STALE_BROKER_EPOCH

    tell(SimulatedDisk(), live)


def test_a_controller_registers() -> None:
    request = ControllerRegistrationRequest(
        controller_id=9,
        incarnation_id=uuid_of(1),
        features=[
            controller_registration.Feature(
                name=name, min_supported_version=first, max_supported_version=last
            )
            for name, (first, last) in CLAIMED_LEVELS.items()
        ],
    )

    async def live(store: EmbeddedMetadataStore) -> None:
        handler = ControllerRegistrationHandler(store)
        answer = await handler.handle(CONTEXT, request)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert store.image.controllers[9].levels_by_feature == CLAIMED_LEVELS
        await store.close()
        refused = await handler.handle(CONTEXT, request)
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.NOT_CONTROLLER,
            "the broker stops",
        )

    tell(SimulatedDisk(), live)


def test_the_level_of_the_quorum_is_one_of_the_features() -> None:
    async def live(store: EmbeddedMetadataStore) -> None:
        handler = ApiVersionsHandler(dict, lambda: store.image, lambda: 1)
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        answer = await handler.handle(CONTEXT, request)
        assert {one.name: one.max_version_level for one in answer.finalized_features} == {
            "kraft.version": 1,
            "metadata.version": 30,
            "transaction.version": 2,
        }
        replica = ReplicaTwin()
        replica.voters = VoterSet((Voter(ReplicaKey(9)),))
        update = UpdateFeaturesHandler(store, replica)
        changed = await update.handle(
            CONTEXT,
            UpdateFeaturesRequest(
                feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1)]
            ),
        )
        assert changed.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "The update failed for all features" in str(changed.error_message)

    tell(SimulatedDisk(), live)
