"""Bugs that controllers of quorums had, to be put back for as long as a test runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ottla.machines.controller import brokers, lifecycle
from ottla.machines.controller.broker_sessions import BrokerSessions
from ottla.machines.controller.leadership import Leadership
from ottla.machines.controller.partition_change import PartitionChange
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.log_replay import ImageChange, MetadataLogReplay
from ottla.metadata.records import NO_LEADER, TopicRecord
from ottla.metadata.replay import replay
from ottla.model.identifiers import Offset


@contextmanager
def patched(owner: Any, name: str, mutant: Any) -> Iterator[None]:
    whole = getattr(owner, name)
    setattr(owner, name, mutant)
    try:
        yield
    finally:
        setattr(owner, name, whole)


def keeping_what_a_snapshot_lacks() -> Any:
    """KAFKA-14894: a snapshot is loaded over the image that there is."""

    def load(self: Any, records: Any, end_offset: Offset) -> ImageChange:
        before = self._committed.published
        new = [
            one
            for one in records
            if not isinstance(one, TopicRecord) or one.topic_id not in before.topics_by_id
        ]
        image = replay(before, new, end_offset)
        self._uncommitted.clear()
        self._committed = replace(
            self._committed, end_offset=end_offset, newest=image, published=image
        )
        return ImageChange(image, tuple(new))

    return patched(MetadataLogReplay, "load", load)


def forgetting_sessions() -> Any:
    """KAFKA-18138: a new controller does not know of the brokers in service."""
    return patched(BrokerSessions, "begin", lambda *_: None)


def giving_sessions_to_fenced_brokers() -> Any:
    """KAFKA-19130: a new controller waits for brokers that are fenced."""

    def is_valid(self: Any, broker: BrokerImage, now_ms: int) -> bool:
        session = self._session_by_broker.get(broker.broker_id)
        return session is None or now_ms <= session.heard_ms + self._timeout_ms

    return patched(BrokerSessions, "is_valid", is_valid)


def forgetting_the_incarnation() -> Any:
    """KAFKA-16952: the same incarnation gets a new epoch, and is fenced."""
    whole = brokers._broker

    def stranger(image: ClusterImage, request: Any) -> BrokerImage:
        others = {
            number: one for number, one in image.brokers.items() if number != request.broker_id
        }
        return whole(replace(image, brokers=others), request)

    return patched(brokers, "_broker", stranger)


def moving_the_shutdown_offset() -> Any:
    """KAFKA-14292: a shutdown waits for the newest offset at each heartbeat."""

    def begin_shutdown(self: Any, broker: BrokerImage, offset: Offset, now_ms: int) -> Offset:
        self._begun(broker, now_ms).shutdown_offset = offset
        return offset

    return patched(BrokerSessions, "begin_shutdown", begin_shutdown)


def not_waiting_for_the_others() -> Any:
    """A broker stops although others do not know the new leaders yet."""
    return patched(BrokerSessions, "lowest_active_offset", lambda *_: None)


def unfencing_at_once() -> Any:
    """A broker serves before it knows of its own registration."""
    return patched(BrokerSessions, "has_seen_registration", lambda *_: True)


def electing_other_silent_brokers() -> Any:
    """The next broker to be fenced is elected first."""
    whole = lifecycle.fence_broker
    return patched(
        lifecycle, "fence_broker", lambda image, settings, broker_id, _gone=(): whole(
            image, settings, broker_id
        )
    )  # fmt: skip


def letting_fenced_brokers_lead() -> Any:
    """KAFKA-13916: fenced and stopping brokers come into the ISR."""
    return patched(Leadership, "can_lead", lambda self, broker_id: broker_id not in self.leaving)


def electing_last_known_leaders() -> Any:
    """KAFKA-19522: a last known replica leads, fenced or not."""
    whole = PartitionChange._elect

    def elect(self: Any, eligible: Any) -> Any:
        found = whole(self, eligible)
        known = self.partition.last_known_elr
        return known[0] if found == NO_LEADER and known and not self.isr else found

    return patched(PartitionChange, "_elect", elect)


def not_looking_at_levels() -> Any:
    """KAFKA-18844: a broker registers by features of another moment."""
    return patched(brokers, "_check_levels", lambda *_: None)


def trusting_every_restart() -> Any:
    """A broker stays eligible after an unclean stop."""
    whole = Leadership.leave

    def leave(self: Any, broker_id: Any, *, has_lost_tail: bool = False) -> Any:
        del has_lost_tail
        return whole(self, broker_id)

    return patched(Leadership, "leave", leave)


MUTANTS: Final[dict[str, Callable[[], Any]]] = {
    one.__name__: one
    for one in (
        keeping_what_a_snapshot_lacks,
        forgetting_sessions,
        giving_sessions_to_fenced_brokers,
        forgetting_the_incarnation,
        moving_the_shutdown_offset,
        not_waiting_for_the_others,
        unfencing_at_once,
        electing_other_silent_brokers,
        letting_fenced_brokers_lead,
        electing_last_known_leaders,
        not_looking_at_levels,
        trusting_every_restart,
    )
}
