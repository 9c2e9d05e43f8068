"""Partitions on the command line: `TOPIC`, or `TOPIC:0,1`."""

from collections.abc import Sequence

from ottla.cli.support.exit_codes import CommandError, WrongCallError
from ottla.clients.admin.admin_partitions import PartitionDescription
from ottla.clients.admin.async_admin import AsyncAdmin


def parse_partitions(word: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the topic and its partitions, which are None if all are meant."""
    topic, colon, numbers = word.partition(":")
    words = numbers.split(",")
    if not topic or (colon and not all(one.isascii() and one.isdigit() for one in words)):
        raise WrongCallError(f"{word!r} names no partitions: expected TOPIC or TOPIC:0,1")
    return topic, tuple(map(int, words)) if colon else None


def parse_brokers(text: str, option: str) -> list[int]:
    """Read the numbers of brokers, `1,2,3`, each named once."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise WrongCallError(f"{option} takes the numbers of brokers, as in 1,2,3, not {text!r}")
    return list(dict.fromkeys(map(int, words)))


async def named_partitions(admin: AsyncAdmin, words: Sequence[str]) -> list[PartitionDescription]:
    """Describe the named partitions; an unknown one ends the command."""
    parsed = [parse_partitions(word) for word in words]
    described = await admin.partitions.describe({topic for topic, _ in parsed})
    found = {}
    for topic, numbers in parsed:
        of_topic = {row.name.partition: row for row in described if row.name.topic == topic}
        for number in of_topic if numbers is None else numbers:
            if number not in of_topic:
                raise CommandError(
                    f"topic {topic!r} has {len(of_topic)} partitions, numbered from 0: "
                    f"there is no {number}"
                )
            found[of_topic[number].name] = of_topic[number]
    return [found[name] for name in sorted(found)]
