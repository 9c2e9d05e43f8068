"""Groups with members from several libraries, in which the group leader changes."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest

from tests.clients.driver import Member
from tests.clients.group_members import (
    MIXED,
    AioKafkaMember,
    OttlaMember,
    Post,
    closing_members,
    kafka_python_member,
    librdkafka_member,
    poll_until,
)


@pytest.mark.parametrize(
    ("join", "strategy"), MIXED, ids=[f"{join.__name__}-{strategy}" for join, strategy in MIXED]
)
def test_members_of_another_library_share_with_ours_under_any_leader(
    story_servers: str, topic: str, join: Callable[..., Member], strategy: str
) -> None:
    post = Post(story_servers, topic, 4)
    post.send(40)
    settings = {"partition_assignment_strategy": strategy}

    with closing_members() as make:
        ours = make(story_servers, topic, topic, **settings)
        poll_until([ours], lambda: len(ours.values) == 40)
        theirs = join(story_servers, topic, topic, strategy)
        try:
            poll_until([ours, theirs], lambda: is_shared([ours, theirs], 4, [2, 2]))
            ours.consumer.close()
            poll_until([theirs], lambda: theirs.partitions() == {0, 1, 2, 3})
            again = make(story_servers, topic, topic, **settings)
            poll_until([again, theirs], lambda: is_shared([again, theirs], 4, [2, 2]))
        finally:
            theirs.close()
        post.send(40)
        poll_until([again], lambda: again.share == post.all())
        poll_until([again], lambda: set(again.values) == set(post.sent[40:]))


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_four_libraries_share_one_group_under_any_leader(
    story_servers: str, topic: str, strategy: str
) -> None:
    post = Post(story_servers, topic, 8)
    everybody: list[OttlaMember | Member] = []
    with ExitStack() as stack, closing_members() as make:
        ours = make(story_servers, topic, topic, partition_assignment_strategy=strategy)
        poll_until([ours], lambda: ours.share == post.all())
        everybody.append(ours)
        for join in (librdkafka_member, kafka_python_member, AioKafkaMember):
            theirs = join(story_servers, topic, topic, strategy)
            everybody.append(theirs)
            stack.callback(theirs.close)
        poll_until(everybody, lambda: is_shared(everybody, 8, [2, 2, 2, 2]))
        ours.consumer.close()  # it has led so far
        poll_until(everybody[1:], lambda: is_shared(everybody[1:], 8, [2, 3, 3]))
        again = make(story_servers, topic, topic, partition_assignment_strategy=strategy)
        everybody[0] = again
        poll_until(everybody, lambda: is_shared(everybody, 8, [2, 2, 2, 2]))
        stack.close()
        post.send(8)
        poll_until([again], lambda: sorted(again.values) == sorted(post.sent))


def is_shared(members: Sequence[OttlaMember | Member], count: int, sizes: list[int]) -> bool:
    """Return whether each partition has exactly one owner and the shares have these sizes."""
    shares = [
        {name.partition for name in one.share} if isinstance(one, OttlaMember) else one.partitions()
        for one in members
    ]
    return sorted(map(len, shares)) == sizes and set().union(*shares) == set(range(count))
