"""Leader election and ISR when brokers come and go."""

import pytest

from ottla.machines.controller.machine import Controller
from ottla.metadata.records import NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.metadata_building import run
from tests.unit.machines.controller.cluster import alter, cluster, partition, told

PREFERRED, UNCLEAN = 0, 1


def elect(controller: Controller, kind: int, *numbers: int) -> list[ErrorCode]:
    wanted = [TopicPartitions(topic="a", partitions=list(numbers))] if numbers else None
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    results = run(controller, controller.elect_leaders(request))
    return [ErrorCode(one.error_code) for topic in results for one in topic.partition_result]


def test_the_first_in_sync_replica_takes_over_from_a_dead_leader() -> None:
    controller = cluster(1, 2, 0)
    run(controller, controller.fence_broker(1))
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 0), 1)
    assert controller.image.brokers[1].is_fenced


def test_a_dead_follower_leaves_the_isr_and_the_leader_keeps_its_epoch() -> None:
    controller = cluster(1, 2, 0)
    run(controller, controller.fence_broker(0))
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), 0)
    assert after.partition_epoch == 1


def test_fencing_twice_is_no_news() -> None:
    controller = cluster(1, 2, 0)
    run(controller, controller.fence_broker(1))
    assert controller.fence_broker(1).records == ()


def test_the_last_in_sync_replica_stays_eligible_and_leads_when_it_is_back() -> None:
    controller = cluster(0, 1)
    run(controller, controller.fence_broker(1))
    run(controller, controller.fence_broker(0))
    away = partition(controller)
    assert (away.leader, away.isr, away.eligible_leader_replicas) == (NO_LEADER, (), (0,))
    run(controller, controller.unfence_broker(1))
    assert partition(controller).leader == NO_LEADER, "it was not in sync any more"
    run(controller, controller.unfence_broker(0))
    back = partition(controller)
    assert (back.leader, back.isr, back.eligible_leader_replicas) == (0, (0,), ())


def test_below_min_isr_leaving_replicas_stay_eligible_until_it_is_reached_again() -> None:
    controller = cluster(0, 1, 2, min_insync_replicas="2")
    run(controller, controller.fence_broker(1))
    assert partition(controller).eligible_leader_replicas == ()
    run(controller, controller.fence_broker(2))
    assert partition(controller).eligible_leader_replicas == (2,)
    run(controller, controller.fence_broker(0))
    assert partition(controller).eligible_leader_replicas == (0, 2)
    run(controller, controller.unfence_broker(2))
    assert (partition(controller).leader, partition(controller).isr) == (2, (2,))
    run(controller, controller.unfence_broker(1))
    assert told(alter(controller, 2, 1)) is ErrorCode.NONE
    assert partition(controller).eligible_leader_replicas == ()


def test_a_last_replica_that_lost_its_tail_does_not_lead_again() -> None:
    controller = cluster(0, 1)
    run(controller, controller.fence_broker(1))
    run(controller, controller.fence_broker(0))
    run(controller, controller.forget_tail(0))
    run(controller, controller.unfence_broker(0))
    run(controller, controller.unfence_broker(1))
    after = partition(controller)
    assert (after.leader, after.isr, after.last_known_elr) == (NO_LEADER, (), (0,))


def test_a_replica_without_others_leads_again_even_with_a_lost_tail() -> None:
    controller = cluster(0)
    run(controller, controller.fence_broker(0))
    run(controller, controller.forget_tail(0))
    run(controller, controller.unfence_broker(0))
    assert partition(controller).leader == 0


def test_a_replica_that_lost_its_tail_leaves_the_isr_at_once() -> None:
    controller = cluster(0, 1)
    run(controller, controller.forget_tail(0))
    after = partition(controller)
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (1, (1,), ())


def test_an_unclean_election_has_to_be_asked_for_and_leaves_the_leader_alone_in_sync() -> None:
    controller = cluster(0, 1)
    run(controller, controller.fence_broker(1))
    run(controller, controller.fence_broker(0))
    run(controller, controller.unfence_broker(1))
    assert elect(controller, UNCLEAN, 0) == [ErrorCode.NONE]
    after = partition(controller)
    assert (after.leader, after.isr, after.leader_recovery_state) == (1, (1,), 1)
    assert after.eligible_leader_replicas == after.last_known_elr == ()


def test_a_topic_may_ask_for_unclean_elections_once_for_all() -> None:
    controller = cluster(0, 1, unclean_leader_election_enable="true")
    run(controller, controller.fence_broker(1))
    run(controller, controller.fence_broker(0))
    run(controller, controller.unfence_broker(1))
    assert (partition(controller).leader, partition(controller).isr) == (1, (1,))


def test_the_preferred_leader_comes_back_by_an_election() -> None:
    controller = cluster(0, 1)
    run(controller, controller.fence_broker(0))
    run(controller, controller.unfence_broker(0))
    assert elect(controller, PREFERRED, 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    alter(controller, 1, 0)
    assert elect(controller, PREFERRED, 0) == [ErrorCode.NONE]
    assert partition(controller).leader == 0
    assert elect(controller, PREFERRED, 0) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert elect(controller, PREFERRED, 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert elect(controller, PREFERRED) == []


def test_all_preferred_leaders_come_back_at_once() -> None:
    controller = cluster(0, 1, partitions=3)
    run(controller, controller.fence_broker(0))
    run(controller, controller.unfence_broker(0))
    alter(controller, 1, 0)
    run(controller, controller.prefer_leaders())
    assert [partition(controller, number).leader for number in range(3)] == [0, 1, 1]


@pytest.mark.parametrize(("percentage", "leader"), [(0, 0), (99, 0), (100, 1)])
def test_preferred_leaders_come_back_if_enough_of_them_do_not_lead(
    percentage: int, leader: int
) -> None:
    controller = cluster(0, 1, partitions=3)
    run(controller, controller.fence_broker(0))
    run(controller, controller.unfence_broker(0))
    alter(controller, 1, 0)
    run(controller, controller.prefer_leaders(percentage))
    assert partition(controller).leader == leader


def test_no_dead_broker_is_elected_for_a_dead_leader() -> None:
    controller = cluster(0, 1, 2)
    run(controller, controller.fence_broker(0, frozenset([0, 1])))
    assert partition(controller).leader == 2


def test_an_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(ApiError, match="election type 9"):
        elect(cluster(0), 9)


def test_a_broker_that_is_about_to_stop_hands_its_partitions_over() -> None:
    controller = cluster(0, 1, partitions=2)
    assert run(controller, controller.shut_down_broker(0)) == 0
    assert [partition(controller, number).leader for number in range(2)] == [1, 1]
    assert partition(controller).isr == (1,)
    assert controller.image.brokers[0].is_shutting_down


def test_a_stopping_broker_learns_how_many_partitions_have_no_other_leader() -> None:
    controller = cluster(0, partitions=2)
    assert run(controller, controller.shut_down_broker(0)) == 2
    assert partition(controller).leader == 0


def test_a_broker_can_be_removed_for_good() -> None:
    controller = cluster(0, 1)
    run(controller, controller.unregister_broker(0))
    assert 0 not in controller.image.brokers
    assert partition(controller).leader == 1
    with pytest.raises(ApiError) as refused:
        controller.unregister_broker(0)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


# -- AlterPartition -------------------------------------------------------------------------------


def test_a_leader_shrinks_and_grows_its_isr() -> None:
    controller = cluster(0, 1, 2)
    answer = alter(controller, 0)
    assert (answer.isr, answer.partition_epoch, answer.leader_epoch) == ([0], 1, 0)
    assert alter(controller, 0, 2).isr == [0, 2]
    assert partition(controller).isr == (0, 2)


def test_a_leader_that_is_behind_or_is_none_is_refused() -> None:
    controller = cluster(0, 1, 2)
    alter(controller, 0, 1)
    assert told(alter(controller, 0, partition_epoch=0)) is ErrorCode.INVALID_UPDATE_VERSION
    assert told(alter(controller, 1, 0, sender=1)) is ErrorCode.INVALID_REQUEST
    run(controller, controller.fence_broker(0))
    run(controller, controller.unfence_broker(0))
    assert told(alter(controller, 0, sender=0, leader_epoch=0)) is ErrorCode.FENCED_LEADER_EPOCH
    assert told(alter(controller, 1, leader_epoch=9)) is ErrorCode.NOT_CONTROLLER
    assert partition(controller).isr == (1,)


def test_a_fenced_replica_or_another_life_of_it_does_not_come_into_sync() -> None:
    controller = cluster(0, 1, 2)
    alter(controller, 0)
    run(controller, controller.fence_broker(1))
    assert told(alter(controller, 0, 1)) is ErrorCode.INELIGIBLE_REPLICA
    stale = alter(controller, 0, 2, epoch_by_broker={2: 777})
    assert told(stale) is ErrorCode.INELIGIBLE_REPLICA
    assert partition(controller).isr == (0,)


def test_an_isr_without_its_leader_or_with_strangers_is_refused() -> None:
    controller = cluster(0, 1)
    assert told(alter(controller, 1, sender=0)) is ErrorCode.INVALID_REQUEST
    assert told(alter(controller, 0, 2)) is ErrorCode.INVALID_REQUEST


def test_an_earlier_life_of_a_broker_is_not_heard() -> None:
    controller = cluster(0, 1)
    epoch = controller.image.brokers[0].broker_epoch
    request = AlterPartitionRequest(broker_id=0, broker_epoch=epoch + 1, topics=[])
    with pytest.raises(ApiError) as refused:
        controller.alter_partition(request)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
