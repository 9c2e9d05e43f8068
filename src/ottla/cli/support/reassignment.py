"""Plans reassignments of partitions from the current state, starts, limits and watches them.

The limit on their network traffic uses Kafka's settings. Brokers have a rate; topics list the
throttled replicas: while a partition moves, its old replicas as leaders and its new replicas as
followers.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.cli.support.exit_codes import FAILURE, CommandError, say, sentence_of
from ottla.cli.support.output import OutputFormat, Row, outcomes_of, show, show_one
from ottla.clients.admin.admin_cluster import BrokerDescription
from ottla.clients.admin.admin_configs import ConfigAdmin, ConfigChange, ConfigResource
from ottla.clients.admin.admin_partitions import Reassignment
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.admin.reassignment_plan import Assignment, Plan, Site, write_plan
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SENDERS: Final = "leader.replication.throttled.replicas"
RECEIVERS: Final = "follower.replication.throttled.replicas"
Changes = dict[ConfigResource, Mapping[str, ConfigChange]]

PLAN_COLUMNS: Final = ("TOPIC", "PARTITION", "REPLICAS", "TARGET", "STATUS")
MOVE_COLUMNS: Final = ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "BYTES-BEHIND")
LOST: Final = "elsewhere"
LOOK_EVERY_MS: Final = 250
ARRIVAL_SECONDS_MAX: Final = 15
"""How long a broker may take to learn that a move has ended."""
TELL_EVERY_SECONDS: Final = 5
"""The interval of progress messages where no live line can be shown."""


def throttled_replicas(current: Assignment, plan: Plan) -> dict[str, dict[str, str]]:
    """Return the two replica lists of each topic with data to move."""
    lists: dict[str, dict[str, list[str]]] = {}
    for name, replicas in sorted(plan.items()):
        if added := [one for one in replicas if one not in current[name]]:
            of_topic = lists.setdefault(name.topic, {SENDERS: [], RECEIVERS: []})
            of_topic[SENDERS] += [f"{name.partition}:{one}" for one in current[name]]
            of_topic[RECEIVERS] += [f"{name.partition}:{one}" for one in added]
    return {
        topic: {key: ",".join(words) for key, words in of_topic.items()}
        for topic, of_topic in lists.items()
    }


async def set_throttle(
    configs: ConfigAdmin,
    bytes_per_second: int,
    brokers: Iterable[int],
    replicas_by_topic: Mapping[str, Mapping[str, str]],
) -> None:
    """Limit the traffic of these replicas to this rate per broker, in each direction."""
    rates = dict.fromkeys(RATES, str(bytes_per_second))
    changes: Changes = {
        ConfigResource.topic(topic): dict(lists) for topic, lists in replicas_by_topic.items()
    }
    await configs.alter(changes | {ConfigResource.broker(one): rates for one in brokers})


async def remove_throttle(
    configs: ConfigAdmin, brokers: Collection[int], topics: Collection[str]
) -> None:
    """Remove the limit from these brokers and topics; does nothing without a limit."""
    changes: Changes = {ConfigResource.broker(one): dict.fromkeys(RATES) for one in brokers}
    lists = dict.fromkeys((SENDERS, RECEIVERS))
    try:
        await configs.alter(changes | {ConfigResource.topic(topic): lists for topic in topics})
    except ItemsFailedError as error:
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # a deleted topic has no limit
        if any(failure.code is not gone for failure in error.failed.values()):
            raise


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of the cluster for a plan."""

    current: dict[TopicPartition, tuple[int, ...]]
    """The replicas of each partition; for a moving one, its future replicas."""
    brokers: tuple[BrokerDescription, ...]

    @property
    def sites(self) -> list[Site]:
        """The brokers that are in service."""
        return [Site(row.broker_id, row.rack) for row in self.brokers if not row.is_fenced]

    def sites_of(self, broker_ids: Iterable[int]) -> list[Site]:
        """Return these brokers; a broker out of service ends the command."""
        site_by_id = {site.broker_id: site for site in self.sites}
        missing = [one for one in broker_ids if one not in site_by_id]
        if missing:
            raise CommandError(f"broker {missing[0]} is not in service: see `ottla broker list`")
        return [site_by_id[one] for one in broker_ids]


@dataclass(frozen=True, slots=True)
class How:
    """How to carry out a plan."""

    is_dry_run: bool
    waits: bool
    """Whether to wait for the end; a throttle implies it, because it must be removed then."""
    throttle: int | None
    form: OutputFormat


async def take_picture(admin: AsyncAdmin) -> Picture:
    """Query every partition and every broker."""
    described = await admin.partitions.describe()
    moves = await admin.partitions.reassignments()
    current = {
        row.name: moves[row.name].target if row.name in moves else row.replicas for row in described
    }
    return Picture(current, (await admin.cluster.describe(include_fenced=True)).brokers)


async def carry_out(admin: AsyncAdmin, picture: Picture, plan: Plan, how: How) -> None:
    """Show a plan, or start it and wait for its end; a refusal ends the command."""
    if how.is_dry_run:
        _show_plan(picture, plan, dict.fromkeys(plan, "planned"), how.form, is_only_planned=True)
        return
    limited = _limited_brokers(picture, plan) if how.throttle else []
    lists = throttled_replicas(picture.current, plan) if how.throttle else {}
    try:
        if how.throttle:
            await set_throttle(admin.configs, how.throttle, limited, lists)
        outcomes = await outcomes_of(plan, admin.partitions.reassign(plan))
    except ApiError:
        await remove_throttle(admin.configs, limited, lists)
        raise
    status = {name: _status(error, "begun") for name, error in outcomes.items()}
    if how.waits:
        begun = {name: plan[name] for name, error in outcomes.items() if error is None}
        await _wait_for(admin, begun, is_throttled=bool(how.throttle))
        await remove_throttle(admin.configs, limited, lists)
        status |= await _arrivals(admin, begun)
    _show_plan(picture, plan, status, how.form, is_only_planned=False)
    end_with_failures(outcomes)
    if LOST in status.values():
        raise CommandError("another client has changed the reassignment meanwhile")


async def take_back(admin: AsyncAdmin, names: Sequence[TopicPartition], form: OutputFormat) -> None:
    """Cancel ongoing moves, and their throttle; the replicas stay in place."""
    outcomes = await outcomes_of(names, admin.partitions.reassign(dict.fromkeys(names)))
    rows = [
        {
            "TOPIC": name.topic,
            "PARTITION": name.partition,
            "STATUS": _status(error, "cancelled"),
        }
        for name, error in outcomes.items()
    ]
    show(rows, ("TOPIC", "PARTITION", "STATUS"), form)
    if not await admin.partitions.reassignments():
        await _remove_every_throttle(admin, {name.topic for name in names})
    end_with_failures(outcomes)


async def show_moves(admin: AsyncAdmin, form: OutputFormat, *, waits: bool) -> None:
    """Show ongoing moves; waiting also removes the throttle of unattended moves."""
    moves = await admin.partitions.reassignments()
    if waits:
        await _wait_for(admin, {name: move.target for name, move in moves.items()})
        moves = await admin.partitions.reassignments()
    if waits and not moves:  # otherwise new moves have started since
        topics = {row.name.topic for row in await admin.partitions.describe()}
        await _remove_every_throttle(admin, topics)
    behind = await _bytes_behind(admin, moves.values())
    rows = [
        {
            "TOPIC": name.topic,
            "PARTITION": name.partition,
            "REPLICAS": move.replicas,
            "ADDING": move.adding,
            "REMOVING": move.removing,
            "BYTES-BEHIND": behind[name],
        }
        for name, move in moves.items()
    ]
    show(rows, MOVE_COLUMNS, form)


def end_with_failures(outcomes: Mapping[TopicPartition, ApiError | None]) -> None:
    """Print each refusal once, and end the command if there was one."""
    failures = [error for error in outcomes.values() if error is not None]
    for sentence in dict.fromkeys(map(sentence_of, failures)):
        say(sentence)
    if failures:
        raise SystemExit(FAILURE)


class Progress:
    """Reports progress: in place on a terminal, otherwise at intervals."""

    def __init__(self) -> None:
        self._told_at = -float("inf")
        self._is_terminal = sys.stderr.isatty()

    def tell(self, sentence: str) -> None:
        """Show the sentence, unless the previous sentence was shown too recently."""
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[Kottla: {sentence}")
            sys.stderr.flush()
            return
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_EVERY_SECONDS:
            self._told_at = now
            say(sentence)

    def end(self) -> None:
        """Restore the terminal."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


async def _wait_for(
    admin: AsyncAdmin,
    targets: Mapping[TopicPartition, Sequence[int]],
    *,
    is_throttled: bool = False,
) -> None:
    progress = Progress()
    try:
        while True:
            moves = await admin.partitions.reassignments()
            left = [move for name, move in moves.items() if name in targets]
            if not left:
                break
            behind = sum((await _bytes_behind(admin, left)).values())
            progress.tell(
                f"{len(left)} of {len(targets)} partitions move, {behind} bytes are to come"
            )
            await pause(LOOK_EVERY_MS)
    except asyncio.CancelledError:
        progress.end()
        say("the moves go on: `ottla partition reassign --status` shows them")
        if is_throttled:
            say("so does their throttle: `--status --wait` waits for the end and takes it off")
        raise
    progress.end()


async def _arrivals(
    admin: AsyncAdmin, targets: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, str]:
    """Return whether each partition is at its target; retry, as brokers learn of the end later."""
    deadline = asyncio.get_running_loop().time() + ARRIVAL_SECONDS_MAX
    while True:
        found = {row.name: row.replicas for row in await admin.partitions.describe()}
        arrived = {name: found.get(name) == tuple(target) for name, target in targets.items()}
        if all(arrived.values()) or asyncio.get_running_loop().time() > deadline:
            return {name: "done" if is_there else LOST for name, is_there in arrived.items()}
        await pause(LOOK_EVERY_MS)


async def _bytes_behind(
    admin: AsyncAdmin, moves: Iterable[Reassignment]
) -> dict[TopicPartition, int]:
    """Return the bytes that the new replicas of each partition lack, by the sizes of their logs."""
    moves = list(moves)
    sizes = await sizes_by_broker(admin, {one for move in moves for one in move.replicas})
    behind = {}
    for move in moves:
        size_by_broker = {one: sizes.get(one, Counter())[move.name] for one in move.replicas}
        whole = max(
            (size_by_broker[one] for one in move.replicas if one not in move.adding), default=0
        )
        behind[move.name] = sum(max(whole - size_by_broker[one], 0) for one in move.adding)
    return behind


async def sizes_by_broker(
    admin: AsyncAdmin, broker_ids: Iterable[int]
) -> dict[int, Counter[TopicPartition]]:
    """Return the bytes of each partition on each broker, without offline brokers."""
    reachable = {row.broker_id for row in (await admin.cluster.describe()).brokers}
    sizes: dict[int, Counter[TopicPartition]] = {}
    for broker_id in sorted(reachable.intersection(broker_ids)):
        with suppress(ApiError, OSError):
            folders = (await admin.cluster.log_dirs(broker_id))[broker_id]
            sizes[broker_id] = Counter()
            for folder in folders:
                sizes[broker_id].update(folder.size_by_partition)
    return sizes


async def _remove_every_throttle(admin: AsyncAdmin, topics: Iterable[str]) -> None:
    brokers = (await admin.cluster.describe()).brokers
    await remove_throttle(admin.configs, [row.broker_id for row in brokers], sorted(topics))


def _status(error: ApiError | None, fine: str) -> str:
    return fine if error is None else error.code.name


def _limited_brokers(picture: Picture, plan: Plan) -> list[int]:
    """Return the registered brokers that send or receive replicas."""
    involved = {one for name in plan for one in (*plan[name], *picture.current[name])}
    return sorted(involved & {site.broker_id for site in picture.sites})


def _show_plan(
    picture: Picture,
    plan: Plan,
    status: Mapping[TopicPartition, str],
    form: OutputFormat,
    *,
    is_only_planned: bool,
) -> None:
    if is_only_planned and form is OutputFormat.JSON:
        show_one(write_plan(plan), form)
        return
    rows: list[Row] = [
        {
            "TOPIC": name.topic,
            "PARTITION": name.partition,
            "REPLICAS": list(picture.current[name]),
            "TARGET": list(target),
            "STATUS": status[name],
        }
        for name, target in sorted(plan.items())
    ]
    show(rows, PLAN_COLUMNS, form)
    if not plan:
        say("there is nothing to move")
