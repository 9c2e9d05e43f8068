"""Bugs that controllers of quorums had are found by the tests of this controller.

Not put back: heartbeats that wait behind a metadata transaction (KAFKA-15441). A decision here is
one step, with all batches of its transaction, so that no heartbeat can come between.
"""

from collections.abc import Callable

import pytest

from ottla.model.api_error import ApiError
from tests.unit.machines.controller import (
    test_brokers,
    test_leadership,
    test_lifecycle,
)
from tests.unit.machines.controller.mutants import MUTANTS
from tests.unit.metadata import test_log_replay

FINDERS: dict[str, Callable[[], None]] = {
    "keeping_what_a_snapshot_lacks": (
        test_log_replay.test_a_loaded_snapshot_removes_everything_that_it_lacks
    ),
    "forgetting_sessions": (
        test_lifecycle.test_a_new_controller_gives_brokers_in_service_a_whole_session
    ),
    "giving_sessions_to_fenced_brokers": (
        test_brokers.test_a_new_controller_does_not_wait_for_fenced_brokers
    ),
    "forgetting_the_incarnation": (
        test_brokers.test_the_same_incarnation_keeps_its_epoch_and_its_state
    ),
    "moving_the_shutdown_offset": test_lifecycle.test_the_offset_to_wait_for_does_not_move,
    "not_waiting_for_the_others": (
        test_lifecycle.test_a_broker_stops_when_the_others_know_the_new_leaders
    ),
    "unfencing_at_once": (
        test_lifecycle.test_a_broker_serves_once_it_knows_its_registration_and_wants_to
    ),
    "electing_other_silent_brokers": (test_lifecycle.test_no_silent_broker_is_elected_for_another),
    "letting_fenced_brokers_lead": (
        test_leadership.test_a_fenced_replica_or_another_life_of_it_does_not_come_into_sync
    ),
    "electing_last_known_leaders": (
        test_leadership.test_a_last_replica_that_lost_its_tail_does_not_lead_again
    ),
    "not_looking_at_levels": (
        test_brokers.test_every_finalized_level_is_in_the_ranges_of_the_broker
    ),
    "trusting_every_restart": (
        test_brokers.test_after_an_unclean_restart_a_broker_is_eligible_nowhere
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_bug_is_found(mutant: str) -> None:
    FINDERS[mutant]()  # there is nothing to find without the bug
    # The bug may also show in an assertion of the machine, or in a refusal.
    with MUTANTS[mutant](), pytest.raises((AssertionError, ApiError, pytest.fail.Exception)):
        FINDERS[mutant]()
