"""Group members with bugs: the checks of `GroupWorkload` must find each."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from ottla.clients.assignors.assignor import Assignment, MemberSubscription, RacksByTopic
from ottla.clients.assignors.sticky_assignor import CooperativeStickyAssignor
from ottla.clients.consumer.group.membership_machine import (
    LEAVING,
    STABLE,
    UNJOINED,
    Act,
    Generation,
    MembershipMachine,
    Step,
)
from ottla.model.error_code import ErrorCode
from tests.simulation.mutants import patched


def keeping_partitions_after_a_removal() -> AbstractContextManager[None]:
    """A removed member joins again, and reads on meanwhile, though others have its partitions."""

    def join_again(self: MembershipMachine, _: ErrorCode, reason: str) -> None:
        self.generation, self.rejoin_reason = Generation(), reason
        if self.state is not LEAVING:
            self._move(UNJOINED)

    return patched(MembershipMachine, "_remove", join_again)


def keeping_partitions_that_the_assignment_lacks() -> AbstractContextManager[None]:
    """A cooperative member adds the new partitions, and revokes none."""
    reconcile = MembershipMachine._reconcile

    def add(self: MembershipMachine) -> Step | None:
        step = reconcile(self)
        if step is None or step.act is Act.ASSIGN:
            return step
        self._move(STABLE)
        kept = dict.fromkeys([*self._subscription.assigned, *self._target])
        return Step(Act.ASSIGN, tuple(kept))

    return patched(MembershipMachine, "_reconcile", add)


def assigning_a_partition_to_every_member() -> AbstractContextManager[None]:
    """A leader assigns the first partition to all members."""
    assign = CooperativeStickyAssignor.assign

    def assign_twice(
        self: CooperativeStickyAssignor,
        racks_by_topic: RacksByTopic,
        subscriptions: Mapping[str, MemberSubscription],
    ) -> Assignment:
        assignment = assign(self, racks_by_topic, subscriptions)
        first = min(name for names in assignment.values() for name in names)
        return {member: sorted({first, *names}) for member, names in assignment.items()}

    return patched(CooperativeStickyAssignor, "assign", assign_twice)
