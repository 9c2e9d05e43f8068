"""The registry that a command calls, and schemas as they are named on the command line."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.cli.schemas.schema_sources import (
    CLASS_NAME,
    LocalSchema,
    LocalSchemas,
    load_class,
)
from ottla.cli.support.exit_codes import WrongCallError, one_sentence
from ottla.cli.support.file_trees import SUFFIXES, WorkingTree, open_git_tree
from ottla.cli.support.standard_input import Consent, confirm_at
from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.schemas.registry_calls import (
    RegisteredSchema,
    RegistryError,
    RegistryUnreachableError,
)
from ottla.clients.schemas.registry_client import RegistryClient
from ottla.clients.schemas.schema_settings import RegistrySettings, read_registry_settings
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import Schema, SchemaReference, SchemaType

T = TypeVar("T")
VERSIONS_MAX: Final = 1_000
"""The most versions of a subject that are compared; the newest ones."""
_ID: Final = re.compile(r"id:(\d{1,10})", re.ASCII)
_VERSION: Final = re.compile(r"(.+)@(latest|\d{1,10})", re.ASCII | re.DOTALL)
_KNOWN_IMPORTS: Final = ("google/protobuf/", "google/type/", "confluent/")
REFUSALS: Final = (RegistryError, RegistryUnreachableError, InvalidSchemaError)
"""The exceptions of a registry's client."""


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema from anywhere, with its name for messages."""

    name: str
    schema: Schema
    parsed: ParsedSchema


def registry_settings(url: str) -> RegistrySettings:
    """Read the address of a registry; an invalid address is a wrong call."""
    try:
        return read_registry_settings({"url": url}, {})
    except InvalidClientSettingError as error:
        raise WrongCallError(f"--registry: {error}") from None


def with_registry(url: str, work: Callable[[RegistryClient], T]) -> T:
    """Run a function with a client of the registry; a failure ends the command."""
    settings = registry_settings(url)
    with one_sentence(*REFUSALS), RegistryClient(settings) as client:
        return work(client)


def shown_registry(client: RegistryClient) -> str:
    """Return the name of the registry for questions, without its password."""
    return f"registry {', '.join(map(str, client.calls.settings.servers))}"


def confirmed(client: RegistryClient, effects: list[str], consent: Consent) -> bool:
    """Ask before something is destroyed; return whether to go on: False for a dry run."""
    return asyncio.run(confirm_at(shown_registry(client), effects, consent))


def split_version(word: str) -> tuple[str, int | None]:
    """Return subject and version of SUBJECT or SUBJECT@VERSION; None is the latest version."""
    match = _VERSION.fullmatch(word)
    if match is None:
        return word, None
    return match[1], None if match[2] == "latest" else int(match[2])


def find_registered(client: RegistryClient, word: str) -> RegisteredSchema:
    """Return the schema of SUBJECT, SUBJECT@VERSION or id:N."""
    by_id = _ID.fullmatch(word)
    if by_id is not None:
        return client.schema_by_id(int(by_id[1]))
    subject, version = split_version(word)
    if version is None:
        return client.latest_version(subject)
    return client.version(subject, version)


def is_local(word: str) -> bool:
    """Whether a word names a file, a file of a git revision, or a class: no registry is asked."""
    return (
        word.startswith("git:")
        or Path(word).suffix in SUFFIXES
        or CLASS_NAME.fullmatch(word) is not None
    )


def load_local(word: str, included: list[Path]) -> LocalSchema:
    """Return the schema of a file, of `git:REVISION:FILE`, or of `package.module:Class`."""
    path = Path(word).resolve()
    if word.startswith("git:"):
        revision, _, name = word.removeprefix("git:").partition(":")
        path = Path(name).resolve()
        if path.suffix not in SUFFIXES:
            raise WrongCallError(f"{word!r}: expected git:REVISION:FILE")
        schemas = LocalSchemas(open_git_tree(revision, _existing(path)), included)
    elif path.suffix in SUFFIXES:
        schemas = LocalSchemas(WorkingTree(), included)
    else:
        return load_class(word)
    found = schemas.load(path)
    if found is None:
        raise WrongCallError(f"{word}: there is no such file")
    return found


def _existing(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.is_dir())


def load_named(word: str, client: RegistryClient) -> NamedSchema:
    """Return a schema from a file, git, a class or the registry."""
    if is_local(word):
        local = load_local(word, [])
        return NamedSchema(word, local.schema, local.parsed)
    found = find_registered(client, word)
    subject, version = found.subject or word, found.version
    name = word if version is None else f"{subject}@{version}"
    return NamedSchema(name, found.schema, client.parsed(found.schema))


def register_references(client: RegistryClient, local: LocalSchema) -> tuple[SchemaReference, ...]:
    """Register the files that a schema refers to, each under the name of the reference."""
    made = []
    for name, reference in local.references.items():
        if reference.parsed.type is SchemaType.PROTOBUF and name.startswith(_KNOWN_IMPORTS):
            continue
        inner = replace(reference.schema, references=register_references(client, reference))
        client.register(name, inner)
        found = client.look_up(name, inner)
        assert found.version is not None
        made.append(SchemaReference(name, name, found.version))
    return tuple(made)


def subject_for(template: str | None, local: LocalSchema) -> str:
    """Return the subject of a local schema: by the template, else by the name of its file.

    A wrong call if a class has no record name, or the template has an unknown field.
    """
    stem = local.path.stem if local.path is not None else local.name.rpartition(":")[2]
    record = local.parsed.record_name or stem
    is_class = CLASS_NAME.fullmatch(local.name) is not None
    chosen = template or ("{record}" if is_class else "{stem}")
    try:
        return chosen.format(stem=stem, record=record)
    except (KeyError, IndexError, ValueError):
        raise WrongCallError(
            f"--subject {chosen!r}: a template may have {{stem}} and {{record}}"
        ) from None


def config_of(client: RegistryClient, subject: str) -> dict[str, Any]:
    """Return the configuration that applies to a subject."""
    found = client.config(subject)
    return dict(found) if isinstance(found, dict) else {}


def versions_of(client: RegistryClient, subject: str) -> list[RegisteredSchema]:
    """Return the live versions of a subject, the newest last; an empty list without a subject."""
    try:
        numbers = client.versions(subject)
    except RegistryError as error:
        if error.status == 404:
            return []
        raise
    return [client.version(subject, number) for number in numbers[-VERSIONS_MAX:]]
