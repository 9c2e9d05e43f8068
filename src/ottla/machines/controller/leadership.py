"""Leaders when brokers come and go, preferred leaders, and elections on request (KIP-460)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.machines.controller.effective_configs import topic_config, topic_defaults
from ottla.machines.controller.partition_change import Election, PartitionChange
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.metadata_version import ELR_SINCE
from ottla.metadata.records import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
    PartitionChangeRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.model.settings.topic_config import TopicConfig
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    PartitionResult,
    ReplicaElectionResult,
)

_KINDS = {0: Election.PREFERRED, 1: Election.UNCLEAN}


class Place(NamedTuple):
    """One partition of an image."""

    topic: TopicImage
    number: int
    partition: PartitionImage


@dataclass(frozen=True, slots=True)
class Leadership:
    """Decides leadership by an image; the caller may override which brokers count as live."""

    image: ClusterImage
    settings: ControllerSettings
    coming: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
    _config_by_topic: dict[str, TopicConfig] = field(default_factory=dict, init=False)

    def can_lead(self, broker_id: BrokerId) -> bool:
        """Return whether a broker serves, or will once this decision is made."""
        if broker_id in self.leaving:
            return False
        broker = self.image.brokers.get(broker_id)
        return broker_id in self.coming or (broker is not None and broker.is_active)

    def change(
        self,
        place: Place,
        election: Election | None = None,
        has_lost_tail: frozenset[int] = frozenset(),
    ) -> PartitionChange:
        """Begin a change of a partition, by the settings of its topic."""
        config = self._config_of(place.topic.name)
        if election is None:
            is_unclean = config.unclean_leader_election_enable
            election = Election.UNCLEAN if is_unclean else Election.ONLINE
        return PartitionChange(
            place.topic.topic_id,
            place.number,
            place.partition,
            self.can_lead,
            config.min_insync_replicas,
            election,
            has_lost_tail,
            self._directory_of,
            self.image.metadata_version >= ELR_SINCE,
        )

    def place(self, topic_id: bytes, number: int) -> Place:
        """Find a partition; ApiError UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.partition(number)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return Place(topic, number, partition)

    def places(self, wanted: Callable[[PartitionImage], bool]) -> Iterator[Place]:
        """Yield the partitions for which this holds, of all topics."""
        for topic in self.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                if wanted(partition):
                    yield Place(topic, number, partition)

    def leave(
        self, broker_id: BrokerId, *, has_lost_tail: bool = False
    ) -> list[PartitionChangeRecord]:
        """Remove a broker from every ISR, and elect other leaders where it led.

        A broker that has lost its unsynced tail also loses its eligibility to lead.
        """
        lost = frozenset([broker_id] if has_lost_tail else [])

        def concerns(partition: PartitionImage) -> bool:
            return (
                broker_id in partition.isr
                or partition.leader == broker_id
                or (has_lost_tail and broker_id in partition.eligible_leader_replicas)
            )

        return [
            record
            for place in self.places(concerns)
            if (record := self.without(place, broker_id, lost)) is not None
        ]

    def without(
        self, place: Place, broker_id: BrokerId, has_lost_tail: frozenset[int] = frozenset()
    ) -> PartitionChangeRecord | None:
        """Remove a broker from the ISR of one partition."""
        change = self.change(place, has_lost_tail=has_lost_tail)
        change.isr = tuple(one for one in change.isr if one != broker_id)
        return change.record()

    def come(self, broker_id: BrokerId) -> list[PartitionChangeRecord]:
        """Let a broker lead partitions without a leader, if it is eligible."""

        def concerns(partition: PartitionImage) -> bool:
            return partition.leader == NO_LEADER and broker_id in partition.replicas

        return _records([self.change(place) for place in self.places(concerns)])

    def prefer(self, percentage: int = 0) -> list[PartitionChangeRecord]:
        """Elect the preferred replica wherever it can lead and does not.

        Only for brokers with more than so many percent of their preferred partitions led by others.
        """
        total: Counter[int] = Counter()
        led_by_others: Counter[int] = Counter()
        for _, _, partition in self.places(lambda _: True):
            preferred = partition.replicas[0]
            total[preferred] += 1
            led_by_others[preferred] += partition.leader != preferred
        brokers = {one for one in total if led_by_others[one] * 100 > total[one] * percentage}

        def concerns(partition: PartitionImage) -> bool:
            preferred = partition.replicas[0]
            return (
                preferred in brokers
                and partition.leader != preferred
                and preferred in partition.isr
            )

        places = self.places(concerns)
        return _records([self.change(place, Election.PREFERRED) for place in places])

    def _config_of(self, topic: str) -> TopicConfig:
        config = self._config_by_topic.get(topic)
        if config is None:
            defaults = self._config_by_topic.get("")
            if defaults is None:
                defaults = self._config_by_topic[""] = topic_defaults(self.image, self.settings)
            config = self._config_by_topic[topic] = topic_config(self.image, topic, defaults)
        return config

    def _directory_of(self, broker_id: BrokerId) -> bytes:
        broker = self.image.brokers.get(broker_id)
        log_dirs = broker.log_dirs if broker is not None else ()
        return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY


def _records(changes: list[PartitionChange]) -> list[PartitionChangeRecord]:
    return [record for change in changes if (record := change.record()) is not None]


def elect_leaders(
    image: ClusterImage, settings: ControllerSettings, request: ElectLeadersRequest
) -> Decision[MetadataRecord, list[ReplicaElectionResult]]:
    """Hold elections in these partitions, or in every partition that needs one.

    ApiError INVALID_REQUEST for an unknown kind of election.
    """
    kind = _KINDS.get(request.election_type)
    if kind is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type}")
    leadership = Leadership(image, settings)
    records: list[MetadataRecord] = []
    results = []
    for name, numbers in _named(image, request):
        answers = []
        for number in numbers:
            answer = PartitionResult(partition_id=number)
            try:
                records.append(_elect(leadership, kind, name, number))
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.detail
            is_noise = answer.error_code == ErrorCode.ELECTION_NOT_NEEDED
            if request.topic_partitions is not None or not is_noise:
                answers.append(answer)
        if answers:
            results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    return Decision(tuple(records), results)


def _named(
    image: ClusterImage, request: ElectLeadersRequest
) -> Iterable[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        return [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    return [(one.topic, one.partitions) for one in request.topic_partitions]


def _elect(leadership: Leadership, kind: Election, name: str, number: int) -> PartitionChangeRecord:
    topic = leadership.image.topics.get(name)
    partition = None if topic is None else topic.partition(number)
    if topic is None or partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {name}-{number}")
    preferred = partition.replicas[0]
    is_led = partition.leader != NO_LEADER
    if partition.leader == preferred if kind is Election.PREFERRED else is_led:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{partition.leader} leads {name}-{number}")
    record = leadership.change(Place(topic, number, partition), kind).record()
    if kind is Election.PREFERRED and (record is None or record.leader != preferred):
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync"
        )
    if record is None:
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {name}-{number} is there"
        )
    return record
