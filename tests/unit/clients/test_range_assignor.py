"""Partitions are shared out as other clients of the same group would."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.range_assignor import assign_ranges
from ottla.model.identifiers import TopicPartition

TOPICS = ("a", "b", "c")


def test_the_first_members_get_one_more_where_it_does_not_come_out_even() -> None:
    assigned = assign_ranges({"m2": ["a"], "m1": ["a"]}, {"a": 3})
    assert assigned == {
        "m1": [TopicPartition("a", 0), TopicPartition("a", 1)],
        "m2": [TopicPartition("a", 2)],
    }


def test_who_does_not_want_a_topic_gets_none_of_it() -> None:
    assert assign_ranges({"m1": ["a"], "m2": ["b"]}, {"a": 1, "b": 1}) == {
        "m1": [TopicPartition("a", 0)],
        "m2": [TopicPartition("b", 0)],
    }


@given(
    st.dictionaries(st.text(min_size=1), st.lists(st.sampled_from(TOPICS), unique=True)),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
)
def test_every_wanted_partition_has_exactly_one_owner(
    topics_by_member: dict[str, list[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(topics_by_member, counts)
    wanted = {topic for topics in topics_by_member.values() for topic in topics}
    given_out = sorted(name for names in assigned.values() for name in names)
    assert given_out == sorted(
        TopicPartition(topic, number)
        for topic, count in counts.items()
        if topic in wanted
        for number in range(count)
    )
    for member, names in assigned.items():
        assert {name.topic for name in names} <= set(topics_by_member[member])
