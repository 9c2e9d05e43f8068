"""Decisions on deletes: soft, which hides versions, and hard, which removes soft-deleted ones.

The configuration and the mode of a subject go with its last live version. A version that a live
version refers to cannot go.
"""

from collections.abc import Iterable

from ottla.registry.configuration import record_scope
from ottla.registry.qualified_subjects import DEFAULT_CONTEXT
from ottla.registry.registry_errors import (
    context_not_empty,
    context_not_found,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    unprocessable,
    version_not_soft_deleted,
    version_soft_deleted,
)
from ottla.registry.registry_machine import Decision, RegistryMachine
from ottla.registry.registry_state import Version
from ottla.registry.schemas_records import (
    Record,
    config_record,
    context_record,
    delete_subject_record,
    max_ids_record,
    mode_record,
    schema_record,
    schema_tombstone,
)


def delete_subject(machine: RegistryMachine, subject: str, *, permanent: bool) -> Decision:
    """Delete all versions of a subject; the response is their numbers."""
    versions = list(machine.state.versions(subject).values())
    if not versions:
        raise subject_not_found(subject)
    _check_mode(machine, subject)
    live = [version for version in versions if not version.is_deleted]
    if permanent and live:
        raise subject_not_soft_deleted(subject)
    if not permanent and not live:
        raise subject_soft_deleted(subject)
    deleted = versions if permanent else live
    _check_referrers(machine, deleted)
    numbers = [version.number for version in deleted]
    if permanent:
        return Decision(_hard_deletes(machine, deleted), numbers)
    records = delete_subject_record(subject, numbers[-1]), *_scope_tombstones(machine, subject)
    return Decision(records, numbers)


def delete_version(machine: RegistryMachine, version: Version, *, permanent: bool) -> Decision:
    """Delete a version; the response is its number."""
    subject, number = version.place
    _check_mode(machine, subject)
    if permanent and not version.is_deleted:
        raise version_not_soft_deleted(subject, number)
    if not permanent and version.is_deleted:
        raise version_soft_deleted(subject, number)
    _check_referrers(machine, [version])
    if permanent:
        return Decision(_hard_deletes(machine, [version]), number)
    stored = version.stored
    records = [schema_record(subject, number, stored.id, stored.schema, deleted=True)]
    if len(machine.state.live_versions(subject)) == 1:
        records += _scope_tombstones(machine, subject)
    return Decision(tuple(records), number)


def delete_context(machine: RegistryMachine, context: str) -> Decision:
    """Delete a context without subjects."""
    state = machine.state
    if context == DEFAULT_CONTEXT:
        raise unprocessable("The default context cannot be deleted.")
    if not state.has_context(context):
        raise context_not_found(context)
    if state.subjects_of(context):
        raise context_not_empty(context)
    return Decision((context_record(context, deleted=True),), None)


def _check_mode(machine: RegistryMachine, subject: str) -> None:
    if machine.is_read_only(subject):
        raise not_permitted(f"Subject {subject} is in read-only mode")


def _check_referrers(machine: RegistryMachine, versions: Iterable[Version]) -> None:
    # A subject may refer to its own versions: those referrers go with it.
    going = {version.place for version in versions}
    for subject, number in going:
        for referrer in machine.state.referrers(subject, number):
            if not referrer.is_deleted and referrer.place not in going:
                raise reference_exists(subject, number)


def _hard_deletes(machine: RegistryMachine, versions: Iterable[Version]) -> tuple[Record, ...]:
    """Return tombstones, and first the ids that compaction would otherwise forget."""
    tombstones = [schema_tombstone(*version.place) for version in versions]
    return max_ids_record(machine.state.max_ids), *tombstones


def _scope_tombstones(machine: RegistryMachine, subject: str) -> list[Record]:
    records: list[Record] = []
    if subject in machine.state.configs:
        records.append(config_record(record_scope(subject), None))
    if subject in machine.state.modes:
        records.append(mode_record(record_scope(subject), None))
    return records
