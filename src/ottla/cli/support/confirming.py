"""Destructive commands name the cluster and the data to destroy, and ask before they act."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError, say
from ottla.cli.support.standard_input import chunks
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.identifiers import TopicPartition

EFFECTS_SHOWN_MAX: Final = 20
"""More effects are cut here, so that the cluster and the question stay visible."""
_YES: Final = ("y", "yes")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-d", help="Only show what would be done, and change nothing.")
]


@dataclass(frozen=True, slots=True)
class Consent:
    """The options of a destructive command."""

    is_given: bool
    """--yes: do not ask."""
    is_dry_run: bool

    def __post_init__(self) -> None:
        if self.is_given and self.is_dry_run:
            raise WrongCallError("--yes does it, --dry-run does not: give one of them")


async def confirm(view: ClusterView, effects: Sequence[str], consent: Consent) -> bool:
    """Show the cluster and the effects; return whether to continue: False for a dry run.

    Each effect is a phrase such as "delete topic letters". Without `--yes` a person at a terminal
    is asked, and any answer but yes ends the command; without a terminal the command is refused.
    Without effects no consent is needed: the command itself reports why there is nothing to do.
    """
    if not effects:
        return not consent.is_dry_run
    cluster = await cluster_name(view)
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if not (consent.is_given or consent.is_dry_run or is_terminal):
        shown = effects[0] if len(effects) == 1 else f"{effects[0]} and {len(effects) - 1} more"
        raise WrongCallError(f"{cluster}: give --yes to {shown}; --dry-run only shows it")
    say(f"{cluster}: {'would' if consent.is_dry_run else 'will'}")
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
