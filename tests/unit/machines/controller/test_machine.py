"""The controller machine, and broker registration."""

from ottla.machines.controller.brokers import EPOCH_TO_BE_GIVEN
from ottla.metadata.image import BrokerImage, ClusterImage, Endpoint
from ottla.metadata.records import FeatureLevelRecord, ProducerIdsRecord
from tests.metadata_building import CLUSTER_ID, controller_of, image_of, new_broker, run, uuid_of


def test_a_log_begins_with_the_formats_that_it_is_written_in() -> None:
    controller = controller_of(ClusterImage(CLUSTER_ID))
    decision = controller.bootstrap()
    assert decision.records == (
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    )
    run(controller, decision)
    assert controller.bootstrap().records == ()


def test_replaying_is_all_that_moves_the_image_on() -> None:
    controller = controller_of(image_of())
    controller.replay([ProducerIdsRecord(next_producer_id=7)], 10)
    assert (controller.image.next_producer_id, controller.image.end_offset) == (7, 10)


def test_a_broker_is_admitted_with_the_offset_of_its_record_as_epoch() -> None:
    controller = controller_of(image_of(*[FeatureLevelRecord(name="f", feature_level=1)] * 6))
    endpoint = Endpoint("PLAINTEXT", "host", 9092, 0)
    broker = BrokerImage(
        4,
        EPOCH_TO_BE_GIVEN,
        uuid_of(9),
        (endpoint,),
        rack="r",
        log_dirs=(uuid_of(2),),
        levels_by_feature={"metadata.version": (7, 29)},
    )
    decision = controller.register_broker(broker)
    assert run(controller, decision) == 6
    assert controller.image.brokers == {
        4: BrokerImage(
            broker_id=4,
            broker_epoch=6,
            incarnation_id=uuid_of(9),
            endpoints=(endpoint,),
            rack="r",
            log_dirs=(uuid_of(2),),
            levels_by_feature={"metadata.version": (7, 29)},
        )
    }


def test_a_broker_that_comes_back_has_another_epoch() -> None:
    controller = controller_of(image_of())
    first = run(controller, controller.register_broker(new_broker(0, uuid_of(1))))
    second = run(controller, controller.register_broker(new_broker(0, uuid_of(2))))
    assert second > first
    assert controller.image.brokers[0].incarnation_id == uuid_of(2)
