"""Elections are counted on the controller that decided them."""

from ottla.broker.metrics.snapshot import Elections
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import MetadataRecord
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.metadata_building import run
from tests.unit.machines.controller.cluster import cluster

UNCLEAN = 1


def decided(
    elections: Elections, controller: Controller, decision: Decision[MetadataRecord, object]
) -> None:
    run(controller, decision)
    elections.on_change(controller.image, decision.records)


def test_a_leader_that_takes_over_is_an_election() -> None:
    controller = cluster(0, 1, partitions=2)
    elections = Elections(controller.image, lambda: True)
    decided(elections, controller, controller.fence_broker(0))
    assert (elections.count, elections.unclean_count) == (2, 0)


def test_a_leader_that_was_not_in_sync_is_an_unclean_election() -> None:
    controller = cluster(0, 1)
    elections = Elections(controller.image, lambda: True)
    decided(elections, controller, controller.fence_broker(1))
    decided(elections, controller, controller.fence_broker(0))
    decided(elections, controller, controller.unfence_broker(1))
    assert elections.count == 0
    wanted = [TopicPartitions(topic="a", partitions=[0])]
    request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=wanted)
    decided(elections, controller, controller.elect_leaders(request))
    assert (elections.count, elections.unclean_count) == (1, 1)


def test_decisions_of_another_controller_do_not_count() -> None:
    controller = cluster(0, 1)
    elections = Elections(controller.image, lambda: False)
    decided(elections, controller, controller.fence_broker(0))
    assert elections.count == 0
