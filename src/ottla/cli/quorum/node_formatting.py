"""`ottla storage format`: checks the call, and writes the first files of a node.

A call that would let a quorum elect two leaders, or lose its data, is refused: voters on the
command line beside voters in the settings, a controller that has neither and is not told to join a
quorum, and a directory of another cluster or node.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.broker.metadata_store.meta_properties import claim_log_dirs, read_owners
from ottla.broker.quorum.formatting import KRAFT_VERSION_WITH_VOTERS, format_metadata_dir
from ottla.cli.support.exit_codes import CommandError, WrongCallError
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.machines.controller.features import SUPPORTED_LEVELS, first_levels
from ottla.metadata.metadata_version import (
    METADATA_VERSION_FEATURE,
    NEWEST_METADATA_VERSION,
    level_of,
    release_of,
)
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.model.identifiers import BrokerId, uuid_from_text
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import PORT_MAX
from ottla.model.settings.settings import INT32_MAX, nearest_to, shown
from ottla.raft.voter_changes import KRAFT_VERSION_FEATURE
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

RESERVED_IDS: Final = 100
"""Kafka keeps the smallest directory ids for itself (KIP-858)."""
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CONTROLLER: Final = re.compile(
    r"([0-9]{1,10})@(?:\[([0-9A-Fa-f:.%]+)\]|([0-9A-Za-z._-]+)):([0-9]{1,5}):([0-9A-Za-z_-]{22})"
)


@dataclass(frozen=True, slots=True)
class FormatCall:
    """The options of `ottla storage format`."""

    cluster_id: str
    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    ignore_formatted: bool = False
    level_by_feature: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FormattedDirectory:
    """One directory of the node, after the command."""

    path: str
    directory_id: bytes
    has_metadata: bool
    is_new: bool


@dataclass(frozen=True, slots=True)
class World:
    """The disk of a node, and where ids and times come from."""

    disk: Disk
    randomness: Randomness
    now_ms: int
    host_name: str


def directories_of(config: BrokerConfig) -> list[str]:
    """Return the log dirs and the directory of the metadata log, each once."""
    return list(dict.fromkeys([*config.log_dirs, config.metadata_folder]))


def format_node(world: World, config: BrokerConfig, call: FormatCall) -> list[FormattedDirectory]:
    """Format the directories of a node; nothing is written if anything is wrong."""
    check_call(config, call)
    first_voters = _first_voters(world, config, call)
    records = first_records(call.level_by_feature or {}, has_voters=first_voters is not None)
    paths = directories_of(config)
    owners = read_owners(world.disk, paths, config.node_id, call.cluster_id)
    formatted = [path for path, mark in owners.items() if mark is not None]
    if formatted and not call.ignore_formatted:
        raise CommandError(
            f"{formatted[0]} is formatted already: --ignore-formatted leaves it as it is"
        )
    if config.metadata_folder not in formatted:
        _format_metadata(world, config, call, first_voters, records, formatted)
    identity = claim_log_dirs(world.disk, paths, config.node_id, world.randomness, call.cluster_id)
    return [
        FormattedDirectory(
            path, directory_id, path == config.metadata_folder, path not in formatted
        )
        for path, directory_id in zip(paths, identity.directory_ids, strict=True)
    ]


def _format_metadata(
    world: World,
    config: BrokerConfig,
    call: FormatCall,
    first_voters: VoterSet | None,
    records: Sequence[MetadataRecord],
    formatted: Sequence[str],
) -> None:
    """Format the metadata directory, and the log dirs that are not formatted yet."""
    metadata_dir = config.metadata_folder
    new = [path for path in directories_of(config) if path not in formatted]
    directory_ids = {path: world.randomness.uuid() for path in new}
    itself = first_voters and first_voters.voter(config.node_id)
    if itself:
        directory_ids[metadata_dir] = itself.key.directory_id
    format_metadata_dir(
        world.disk,
        new,
        metadata_dir,
        cluster_id=call.cluster_id,
        node_id=config.node_id,
        directory_ids=directory_ids,
        records=records,
        voters=first_voters,
        now_ms=world.now_ms,
    )


# -- the call -------------------------------------------------------------------------------------


def check_call(config: BrokerConfig, call: FormatCall) -> None:
    """Refuse a call that does not fit the settings of the node."""
    if not _CLUSTER_ID.fullmatch(call.cluster_id):
        raise WrongCallError(
            f"--cluster-id cannot be {shown(call.cluster_id)}: it must have 1 to 64 letters,"
            " digits, - or _; `ottla storage random-uuid` prints an id"
        )
    if not config.is_in_quorum:
        raise WrongCallError(
            "process.roles is not set: a node without roles keeps its metadata itself, or in"
            " ZooKeeper, and is not formatted"
        )
    if call.standalone + (call.initial_controllers is not None) + call.no_initial_controllers > 1:
        raise WrongCallError(
            "give only one of --standalone, --initial-controllers and --no-initial-controllers"
        )
    _check_voters(config, call)


def _check_voters(config: BrokerConfig, call: FormatCall) -> None:
    """Refuse a call that leaves the voters open, or names them twice.

    Two sets of voters would each find a majority.
    """
    says_voters = call.standalone or call.initial_controllers is not None
    if config.controller_quorum_voters and (says_voters or call.no_initial_controllers):
        raise WrongCallError(
            "controller.quorum.voters is set, which names the voters for good: leave it out for"
            " --standalone, --initial-controllers or --no-initial-controllers"
        )
    if call.standalone and not config.is_controller:
        raise WrongCallError("--standalone is only for a node with the role controller")
    if (
        config.is_controller
        and not config.controller_quorum_voters
        and not says_voters
        and not call.no_initial_controllers
    ):
        raise WrongCallError(
            "say how this controller finds its quorum: --standalone begins one with it alone,"
            " --initial-controllers with several, and --no-initial-controllers joins one"
        )


# -- the first voters -----------------------------------------------------------------------------


def _first_voters(world: World, config: BrokerConfig, call: FormatCall) -> VoterSet | None:
    listener_name = config.controller_listener_names[0]
    if call.initial_controllers is not None:
        return parse_voters(call.initial_controllers, listener_name)
    if not call.standalone:
        return None
    return standalone_voters(world, config, world.randomness.uuid())


def standalone_voters(world: World, config: BrokerConfig, directory_id: bytes) -> VoterSet:
    """Return the voters of a quorum that begins with one controller; WrongCallError without."""
    if not config.is_controller:
        raise WrongCallError("only a node with the role controller can begin a quorum")
    if not config.controller_listeners[0].port:
        raise WrongCallError(
            "a controller that begins a quorum needs a fixed port, and its listener has 0"
        )
    ports = {listener.name: listener.port for listener in config.controller_listeners}
    advertised = config.controllers_to_advertise(ports, world.host_name)[0]
    key = ReplicaKey(config.node_id, directory_id)
    return VoterSet((Voter(key, (Endpoint(*advertised),)),))


def parse_voters(text: str, listener_name: str) -> VoterSet:
    """Read `ID@HOST:PORT:DIRECTORY,…`; WrongCallError names the part that is wrong."""
    voters = [_voter(part.strip(), listener_name) for part in text.split(",")]
    for what, values in (
        ("id", [voter.key.id for voter in voters]),
        ("directory id", [voter.key.directory_id for voter in voters]),
    ):
        if len(set(values)) != len(values):
            raise WrongCallError(f"--initial-controllers has two controllers with one {what}")
    return VoterSet(tuple(sorted(voters, key=lambda voter: voter.key.id)))


def _voter(text: str, listener_name: str) -> Voter:
    match = _CONTROLLER.fullmatch(text)
    if match is None or int(match[1]) > INT32_MAX or not 0 < int(match[4]) <= PORT_MAX:
        raise WrongCallError(
            f"--initial-controllers cannot have {shown(text)}: each controller must be"
            " ID@HOST:PORT:DIRECTORY, and `ottla storage random-uuid` prints ids of directories"
        )
    endpoint = Endpoint(listener_name, match[2] or match[3], int(match[4]))
    return Voter(ReplicaKey(BrokerId(int(match[1])), _directory_id(match[5])), (endpoint,))


def _directory_id(text: str) -> bytes:
    try:
        found = uuid_from_text(text)
    except ValueError as error:
        raise WrongCallError(f"--initial-controllers: {error}") from None
    if int.from_bytes(found) < RESERVED_IDS:
        raise WrongCallError(f"--initial-controllers: the directory id {text} is a reserved one")
    return found


# -- the first levels of features -----------------------------------------------------------------


def first_records(requested: Mapping[str, int], *, has_voters: bool) -> list[MetadataRecord]:
    """Return the levels of features that a new cluster begins with, as records.

    kraft.version has no such record: it is in the snapshot with the first voters.
    """
    metadata_version = requested.get(METADATA_VERSION_FEATURE, NEWEST_METADATA_VERSION)
    levels = {**first_levels(metadata_version), **requested}
    kraft_version = levels.pop(KRAFT_VERSION_FEATURE, int(has_voters) * KRAFT_VERSION_WITH_VOTERS)
    if kraft_version != int(has_voters) * KRAFT_VERSION_WITH_VOTERS:
        raise WrongCallError(
            f"--feature cannot have kraft.version={kraft_version}: it is 1 with --standalone or"
            " --initial-controllers, and 0 without them"
        )
    for name, level in levels.items():
        _check_level(name, level)
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if level
    ]


def _check_level(name: str, level: int) -> None:
    supported = SUPPORTED_LEVELS.get(name)
    if supported is None:
        names = list(SUPPORTED_LEVELS)
        raise WrongCallError(f"no feature is called {shown(name)}{nearest_to(name, names)}")
    first, last = supported
    if not first <= level <= last:
        raise WrongCallError(
            f"--feature cannot have {name}={level}: its level must be from {first} to {last}"
        )


def requested_levels(features: Iterable[str], release: str | None) -> dict[str, int]:
    """Read the options --feature and --release-version."""
    levels = parse_levels(features, "--feature")
    if release is None:
        return levels
    if METADATA_VERSION_FEATURE in levels:
        raise WrongCallError("give --release-version or --feature metadata.version=LEVEL, not both")
    level = level_of(release)
    if level is None:
        oldest, newest = map(release_of, SUPPORTED_LEVELS[METADATA_VERSION_FEATURE])
        raise WrongCallError(
            f"--release-version cannot be {shown(release)}: it must be from {oldest} to {newest}"
        )
    return {**levels, METADATA_VERSION_FEATURE: level}


def parse_levels(words: Iterable[str], option: str) -> dict[str, int]:
    """Read `NAME=LEVEL` words."""
    levels = {}
    for word in words:
        name, _, level = word.partition("=")
        if not name or not re.fullmatch("[0-9]{1,5}", level):
            raise WrongCallError(f"{option} takes NAME=LEVEL, not {shown(word)}")
        levels[name] = int(level)
    return levels
