"""Where `ottla schema check` finds earlier versions: git, a directory, or a registry."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from ottla.cli.schemas.schema_check import (
    DEFAULT_LEVEL,
    VALID,
    CheckedSchema,
    EarlierVersion,
    check,
    invalid,
)
from ottla.cli.schemas.schema_registry import (
    REFUSALS,
    config_of,
    registry_settings,
    subject_for,
    versions_of,
)
from ottla.cli.schemas.schema_sources import (
    InvalidFileError,
    LocalSchema,
    LocalSchemas,
    expanded,
    load_class,
    load_class_at,
    shown_path,
)
from ottla.cli.support.exit_codes import WrongCallError, one_sentence, say
from ottla.cli.support.file_trees import FolderTree, GitTree, WorkingTree, open_git_tree
from ottla.clients.schemas.registry_client import RegistryClient
from ottla.schemas.parsed_schema import CompatibilityPolicy, InvalidSchemaError

COMMITS_MAX: Final = 100
"""The most commits of a file that a transitive level compares with; the newest ones."""
_GIT: Final = "git:"


@dataclass(frozen=True, slots=True)
class Earlier:
    """The earlier versions of one schema, the newest last, and the rules of comparison."""

    versions: Sequence[EarlierVersion]
    level: str | None = None
    """The level that the registry has for the subject; None elsewhere."""
    policy: CompatibilityPolicy = CompatibilityPolicy.STRICT
    subject: str | None = None


class Against(Protocol):
    """A place with earlier versions."""

    def earlier(self, new: LocalSchema, *, is_transitive: bool) -> Earlier:
        """Return the earlier versions of a schema; at least the newest if not transitive."""
        ...


class NoEarlier:
    """No `--against`: schemas are only parsed."""

    def earlier(self, new: LocalSchema, *, is_transitive: bool) -> Earlier:  # noqa: ARG002
        """Return no versions."""
        return Earlier(())


class GitVersions:
    """The versions in a revision and, for a transitive level, in the commits before it."""

    def __init__(self, revision: str, included: Sequence[Path]) -> None:
        self._revision = revision
        self._included = included
        self._trees: dict[Path, GitTree] = {}
        self._schemas: dict[str, LocalSchemas] = {}

    def earlier(self, new: LocalSchema, *, is_transitive: bool) -> Earlier:
        """Return the versions in git; an invalid earlier version cannot be compared with."""
        tree = self._tree(Path.cwd().resolve() if new.path is None else new.path.parent)
        is_class = new.path is None or new.path.suffix == ".py"
        trees = [tree]
        if is_transitive and new.path is not None:
            trees += tree.earlier(new.path, COMMITS_MAX + 1)
            if len(trees) > COMMITS_MAX + 1:
                say(f"{new.name}: only the newest {COMMITS_MAX} commits are compared")
                trees = trees[: COMMITS_MAX + 1]
        found: dict[str, EarlierVersion] = {}
        for one in trees:
            local = load_class_at(one, new.name) if is_class else self._load(one, new.path)
            if local is not None:
                found.setdefault(local.parsed.canonical(), EarlierVersion(one.name, local.parsed))
        return Earlier(list(found.values())[::-1])

    def _tree(self, near: Path) -> GitTree:
        if near not in self._trees:
            self._trees[near] = open_git_tree(self._revision, near)
        return self._trees[near]

    def _load(self, tree: GitTree, path: Path | None) -> LocalSchema | None:
        assert path is not None
        schemas = self._schemas.setdefault(tree.commit, LocalSchemas(tree, self._included))
        return _earlier_of(tree.name, schemas, path)


class FolderVersions:
    """The versions in another directory."""

    def __init__(self, folder: Path, bases: Sequence[Path], included: Sequence[Path]) -> None:
        self._tree = FolderTree(folder, tuple(bases))
        self._schemas = LocalSchemas(self._tree, included)

    def earlier(self, new: LocalSchema, *, is_transitive: bool) -> Earlier:  # noqa: ARG002
        """Return the copy of a file in the directory."""
        if new.path is None or new.path.suffix == ".py":
            raise WrongCallError(
                f"{new.name} is a class, and {self._tree.name} a directory: check against git or a "
                "registry"
            )
        found = _earlier_of(self._tree.name, self._schemas, new.path)
        return Earlier(() if found is None else [EarlierVersion(self._tree.name, found.parsed)])


def _earlier_of(name: str, schemas: LocalSchemas, path: Path) -> LocalSchema | None:
    try:
        return schemas.load(path)
    except InvalidFileError as error:
        say(f"{name}: no valid schema to compare with: {error}")
        return None


class RegistryVersions:
    """The versions of subjects in a registry, with their level and policy."""

    def __init__(self, client: RegistryClient, template: str | None) -> None:
        self._client = client
        self._template = template

    def earlier(self, new: LocalSchema, *, is_transitive: bool) -> Earlier:  # noqa: ARG002
        """Return the live versions of the schema's subject."""
        subject = subject_for(self._template, new)
        config = config_of(self._client, subject)
        versions = [
            EarlierVersion(f"version {found.version}", self._client.parsed(found.schema))
            for found in versions_of(self._client, subject)
        ]
        level = str(config.get("compatibilityLevel") or DEFAULT_LEVEL)
        policy = CompatibilityPolicy(config.get("compatibilityPolicy") or "STRICT")
        return Earlier(versions, level, policy, subject)


@contextmanager
def open_against(
    word: str | None,
    registry: str,
    template: str | None,
    words: Sequence[str],
    included: list[Path],
) -> Iterator[Against]:
    """Open the place of earlier versions; a wrong call if there is none of this name."""
    if word is None:
        yield NoEarlier()
    elif word.startswith(_GIT):
        yield GitVersions(word.removeprefix(_GIT), included)
    elif word == "registry" or word.startswith(("http://", "https://")):
        url = registry if word == "registry" else word
        settings = registry_settings(url)
        with one_sentence(*REFUSALS), RegistryClient(settings) as client:
            yield RegistryVersions(client, template)
    elif Path(word).is_dir():
        paths = (Path(one).resolve() for one in words)
        bases = [Path.cwd().resolve(), *(p if p.is_dir() else p.parent for p in paths)]
        yield FolderVersions(Path(word).resolve(), bases, included)
    else:
        raise WrongCallError(
            f"--against {word!r} is neither git:REVISION, nor registry, nor a URL, nor a directory"
        )


def check_all(
    words: Sequence[str],
    against: Against,
    level: str | None,
    template: str | None,
    included: list[Path],
) -> list[CheckedSchema]:
    """Check the files and classes of the command line. A wrong call if there is none."""
    working = WorkingTree()
    found = expanded(working, words)
    if not found:
        raise WrongCallError(f"there is no .avsc, .json or .proto file in {', '.join(words)}")
    schemas = LocalSchemas(working, included)
    results = []
    for one in found:
        try:
            new = load_class(one) if isinstance(one, str) else schemas.load(one)
        except InvalidSchemaError as error:
            path = None if isinstance(one, str) else one
            name = one if isinstance(one, str) else shown_path(one)
            results.append(invalid(name, str(error).removeprefix(f"{name}: "), path))
            continue
        if new is not None:
            results.append(_check_one(new, against, level, template))
    return results


def _check_one(
    new: LocalSchema, against: Against, level: str | None, template: str | None
) -> CheckedSchema:
    earlier = against.earlier(new, is_transitive=(level or "").endswith("_TRANSITIVE"))
    chosen = level or earlier.level or DEFAULT_LEVEL
    subject = earlier.subject or subject_for(template, new)
    checked = check(new, earlier.versions, chosen, subject, earlier.policy)
    return replace(checked, status=VALID) if isinstance(against, NoEarlier) else checked


def included_folders(words: Sequence[str], folders: Sequence[str] | None) -> list[Path]:
    """Return the directories in which references are looked for; a wrong call for a missing one."""
    for folder in folders or ():
        if not Path(folder).is_dir():
            raise WrongCallError(f"--include {folder}: there is no such directory")
    named: list[Any] = [*(folders or ()), *(word for word in words if Path(word).is_dir())]
    return list(dict.fromkeys(Path(one).resolve() for one in named))
