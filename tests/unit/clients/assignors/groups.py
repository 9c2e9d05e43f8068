"""Groups to share partitions out in: written down, or made up by hypothesis."""

from collections.abc import Mapping, Sequence
from itertools import count

from hypothesis import strategies as st

from ottla.clients.assignors.assignor import Assignment, MemberSubscription, RacksByTopic
from ottla.model.identifiers import TopicPartition

NOWHERE: frozenset[str] = frozenset()


def without_racks(partitions_by_topic: Mapping[str, int]) -> RacksByTopic:
    return {topic: [NOWHERE] * number for topic, number in partitions_by_topic.items()}


def in_racks(
    partitions_by_topic: Mapping[str, int], racks: str, replication_factor: int
) -> RacksByTopic:
    """Place replicas in one rack after the other, as the tests of Kafka's do it."""
    places = count()

    def replicas() -> frozenset[str]:
        place = next(places)
        return frozenset(racks[(place + n) % len(racks)] for n in range(replication_factor))

    return {
        topic: [replicas() for _ in range(number)] for topic, number in partitions_by_topic.items()
    }


def named(text: str) -> list[TopicPartition]:
    """Read partitions as `t1-0, t2-1`."""
    words = [word.strip().rsplit("-", 1) for word in text.split(",") if word.strip()]
    return [TopicPartition(topic, int(number)) for topic, number in words]


def by_member(*texts: str) -> Assignment:
    return {f"m{number}": named(text) for number, text in enumerate(texts)}


def members(*topics: str, racks: Sequence[str | None] = ()) -> dict[str, MemberSubscription]:
    """Make a member for each list of topics, written as `t1 t2`."""
    return {
        f"m{number}": MemberSubscription(
            topics=tuple(names.split()), rack_id=racks[number] if racks else None
        )
        for number, names in enumerate(topics)
    }


def flat(assignment: Assignment) -> list[TopicPartition]:
    return sorted(name for partitions in assignment.values() for name in partitions)


def wanted(
    racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
) -> list[TopicPartition]:
    """Return every partition that somebody has subscribed to."""
    topics = {topic for row in subscriptions.values() for topic in row.topics}
    return sorted(
        TopicPartition(topic, number)
        for topic in topics & racks_by_topic.keys()
        for number in range(len(racks_by_topic[topic]))
    )


TOPICS = st.dictionaries(st.sampled_from(["t0", "t1", "t2", "t3"]), st.integers(1, 9), min_size=1)
_WANTED = st.lists(st.sampled_from(["t0", "t1", "t2", "t3"]), min_size=1, unique=True).map(tuple)
_NAMES = st.text("abcdef", min_size=1, max_size=3)
SUBSCRIPTIONS = st.dictionaries(
    _NAMES, st.builds(MemberSubscription, topics=_WANTED), min_size=1, max_size=6
)
EQUAL_SUBSCRIPTIONS = st.builds(
    lambda names, topics: {name: MemberSubscription(topics=topics) for name in names},
    st.sets(_NAMES, min_size=1, max_size=6),
    _WANTED,
)
