"""The stories of failing brokers, with Ottla's clients only."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ottla.testing.cluster import Cluster
from tests.cluster.group_member import wait_until_all_is_read
from tests.cluster.load import say
from tests.cluster.our_load import KEYS_PER_PARTITION, OurLoad
from tests.cluster.our_members import OurAsyncMember, OurLoneReader, OurMember, OurReader
from tests.cluster.stories import ASSIGNMENT, Story, counted
from tests.cluster.watching import Watcher


@contextmanager
def told_by_ours(
    name: str,
    cluster: Cluster,
    watcher: Watcher,
    *,
    assignment: Sequence[Sequence[int]] = ASSIGNMENT,
) -> Iterator[Story]:
    """Write and read during the block, then count: no record is lost or doubled."""
    watcher.create_topic(name, assignment)
    with written_and_read(cluster.bootstrap_servers, name, len(assignment)) as (load, members):
        yield Story(name, cluster, watcher, load, members)


@contextmanager
def written_and_read(
    servers: str, topic: str, partitions: int
) -> Iterator[tuple[OurLoad, Sequence[OurReader]]]:
    """Run the story with an existing topic, on brokers of any kind."""
    with ExitStack() as stack:
        alone = stack.enter_context(OurLoneReader(servers, topic, partitions))
        members = [
            stack.enter_context(kind(servers, topic, topic)) for kind in (OurMember, OurAsyncMember)
        ]
        with OurLoad(servers, topic, partitions, KEYS_PER_PARTITION) as load:
            load.wait_for(lambda: is_shared(members, partitions))
            yield load, members
        wait_until_all_is_read(members, load.acknowledged)
        wait_until_all_is_read([alone], load.acknowledged)
    counted(load)
    read_rightly(alone, members)


def is_shared(members: Sequence[OurReader], partitions: int) -> bool:
    """Return whether all members have partitions, all are assigned, and all know each other."""
    shares = [len(one.assigned) for one in members]
    is_known = len({one.generation for one in members}) == 1 and members[0].is_settled
    return all(shares) and sum(shares) == partitions and is_known


def read_rightly(alone: OurReader, members: Sequence[OurReader]) -> None:
    """Check that no consumer got an error, skipped a record, or got one twice."""
    failed = [failure for one in (alone, *members) for failure in one.failed]
    assert not failed, failed[:3]
    delivered: Counter[tuple[int, int]] = sum((one.delivered for one in members), Counter())
    refused: Counter[str] = sum((one.refused for one in members), Counter())
    lost = sum(one.lost for one in members)
    again = delivered.total() - len(delivered)
    say(
        f"  group: {len(delivered)} read, {again} again, {lost} partitions lost, refused commits"
        f" {dict(refused)}; alone: {len(alone.delivered)} read"
    )
    assert not sum(one.out_of_order for one in (alone, *members))
    assert set(alone.delivered.values()) == {1}
    assert lost or refused or not again
