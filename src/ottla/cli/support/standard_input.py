"""Reads stdin in an event loop, and asks on a terminal before data is destroyed.

Pipes and terminals are read when they are readable, files at once. A destructive command names the
cluster and the data to destroy before it asks.
"""

import asyncio
import os
import select
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError, say
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.identifiers import TopicPartition

CHUNK_BYTES: Final = 1 << 18

EFFECTS_SHOWN_MAX: Final = 20
"""More effects are cut here, so that the cluster and the question stay visible."""
_YES: Final = ("y", "yes")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-d", help="Show the changes without making them.")
]


class Chunk(NamedTuple):
    """A part of the input, and whether more is available already."""

    data: bytes
    has_more: bool


async def chunks() -> AsyncGenerator[Chunk, None]:
    """Yield stdin as it arrives, until its end. Cancellation restores all state."""
    descriptor = sys.stdin.fileno()
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, CHUNK_BYTES)
        if not data:
            return
        yield Chunk(data, bool(select.select([descriptor], [], [], 0)[0]))


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def wake() -> None:
        if not arrived.done():
            arrived.set_result(None)

    try:
        loop.add_reader(descriptor, wake)
    except PermissionError:
        return  # a file, which epoll does not support
    try:
        await arrived
    finally:
        loop.remove_reader(descriptor)


@dataclass(frozen=True, slots=True)
class Consent:
    """The options of a destructive command."""

    is_given: bool
    """--yes: do not ask."""
    is_dry_run: bool

    def __post_init__(self) -> None:
        if self.is_given and self.is_dry_run:
            raise WrongCallError("--yes and --dry-run exclude each other: give only one")


async def confirm(view: ClusterView, effects: Sequence[str], consent: Consent) -> bool:
    """Show the cluster and the effects; return whether to continue: False for a dry run.

    Each effect is a phrase such as "delete topic letters". Without `--yes` a person at a terminal
    is asked, and any answer but yes ends the command; without a terminal the command is refused.
    Without effects no consent is needed: the command itself reports why there is nothing to do.
    """
    if not effects:
        return not consent.is_dry_run
    return await confirm_at(await cluster_name(view), effects, consent)


async def confirm_at(place: str, effects: Sequence[str], consent: Consent) -> bool:
    """Show the name of the cluster or registry and the effects, of which there is at least one."""
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if not (consent.is_given or consent.is_dry_run or is_terminal):
        shown = effects[0] if len(effects) == 1 else f"{effects[0]} and {len(effects) - 1} more"
        raise WrongCallError(f"{place}: give --yes to {shown}; --dry-run only shows it")
    say(f"{place}: {'would' if consent.is_dry_run else 'will'}")
    for line in _lines(effects):
        sys.stderr.write(f"  {line}\n")
    if consent.is_given or consent.is_dry_run:
        return consent.is_given
    if (await _answer("Go on? [y/N] ")).strip().lower() not in _YES:
        raise CommandError("nothing was changed")
    return True


async def cluster_name(view: ClusterView) -> str:
    """Return the id of the cluster and its bootstrap address."""
    if view.cluster_id is None:
        await view.refresh([])
    addresses = ",".join(map(str, view.settings.bootstrap_servers))
    return f"cluster {view.cluster_id or '(without an id)'} at {addresses}"


async def records_by_topic(admin: AsyncAdmin, names: Iterable[TopicPartition]) -> dict[str, int]:
    """Return how many offsets the logs of each topic span: at least as many as its records."""
    count_by_topic: dict[str, int] = {}
    for name, (start, end) in (await admin.offsets.ends(names)).items():
        count_by_topic[name.topic] = count_by_topic.get(name.topic, 0) + end - start
    return count_by_topic


def counted(count: int, noun: str) -> str:
    """Return `1 partition`, `2,000 partitions`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _lines(effects: Sequence[str]) -> list[str]:
    more = len(effects) - EFFECTS_SHOWN_MAX
    return [*effects[:EFFECTS_SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])]


async def _answer(question: str) -> str:
    """Ask on the terminal. In an event loop, only a second Ctrl-C would end `input`."""
    sys.stderr.write(question)
    sys.stderr.flush()
    async with aclosing(chunks()) as typed:
        async for chunk in typed:
            return chunk.data.decode(errors="replace")
    sys.stderr.write("\n")
    return ""
