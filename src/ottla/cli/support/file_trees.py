"""Files as they are, as a git revision has them, or as another directory has them.

Paths are absolute and belong to the working files; a tree maps them to its own copies.
"""

import os
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final, Protocol

from ottla.cli.support.exit_codes import CommandError, WrongCallError

FILE_BYTES_MAX: Final = 1 << 20
"""The limit of a schema's text, as in the registry."""
FILES_MAX: Final = 10_000
"""The most schema files that a command reads from directories."""
ARCHIVE_BYTES_MAX: Final = 256 << 20
GIT_SECONDS_MAX: Final = 60
SUFFIXES: Final = (".avsc", ".json", ".proto")


class FileTree(Protocol):
    """A set of files."""

    @property
    def name(self) -> str:
        """A name for messages, such as `git main`."""
        ...

    def read(self, path: Path) -> str | None:
        """Return the text of a file; None if the tree does not have it."""
        ...

    def schema_files(self, folder: Path) -> list[Path]:
        """Return the schema files below a directory, sorted; hidden directories are left out."""
        ...


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """The files as they are now."""

    name: str = "the working files"

    def read(self, path: Path) -> str | None:
        """Return the text of a file; None if there is no such file."""
        return _read(path)

    def schema_files(self, folder: Path) -> list[Path]:
        """Return the schema files below a directory, sorted."""
        return _schema_files(folder)


@dataclass(frozen=True, slots=True)
class FolderTree:
    """Another directory with earlier copies.

    A copy has the file's path relative to the current directory, or to the directory that was named
    on the command line.
    """

    folder: Path
    bases: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.folder)

    def read(self, path: Path) -> str | None:
        """Return the text of the copy of a file; None if there is none."""
        texts = (_read(place) for place in self._places(path))
        return next((text for text in texts if text is not None), None)

    def schema_files(self, folder: Path) -> list[Path]:
        """Return the paths of the files that have a copy below a directory."""
        for place in self._places(folder):
            if place.is_dir():
                return [folder / path.relative_to(place) for path in _schema_files(place)]
        return []

    def _places(self, path: Path) -> list[Path]:
        return [
            self.folder / path.relative_to(base) for base in self.bases if path.is_relative_to(base)
        ]


@dataclass(frozen=True, slots=True)
class GitTree:
    """The files of a commit."""

    top: Path
    commit: str
    revision: str

    @property
    def name(self) -> str:
        """The revision as it was given, or the short id of the commit."""
        return f"git {self.revision}"

    def read(self, path: Path) -> str | None:
        """Return the text of a file in the commit; None if the commit does not have it."""
        if not path.is_relative_to(self.top):
            return None
        entry = self._entries([path], "--long").rstrip(b"\0")
        if not entry:
            return None
        kind, blob, size = entry.partition(b"\t")[0].split()[1:]
        if kind != b"blob":
            return None
        _check_size(f"{self.name}: {path}", int(size))
        return _decoded(f"{self.name}: {path}", git(self.top, "cat-file", "blob", blob.decode()))

    def schema_files(self, folder: Path) -> list[Path]:
        """Return the schema files of the commit below a directory, sorted."""
        if not folder.is_relative_to(self.top):
            return []
        names = self._entries([folder], "-r", "--name-only").split(b"\0")
        paths = sorted(self.top / os.fsdecode(name) for name in names if name)
        found = [path for path in paths if is_schema_file(path.relative_to(self.top))]
        return _limited(folder, [path for path in found if path.is_relative_to(folder)])

    def _entries(self, paths: Sequence[Path], *options: str) -> bytes:
        names = [f"./{path.relative_to(self.top)}" for path in paths]
        return git(self.top, "ls-tree", "-z", *options, self.commit, "--", *names)

    def earlier(self, path: Path, count_max: int) -> list["GitTree"]:
        """Return the commits up to this commit that changed a file, the newest first."""
        name = str(path.relative_to(self.top))
        limit = f"--max-count={count_max}"
        listed = git(self.top, "log", "--format=%H", limit, self.commit, "--", f":(literal){name}")
        return [GitTree(self.top, commit, commit[:10]) for commit in listed.decode().split()]

    def extract_python(self, target: Path) -> None:
        """Write the Python files of the commit to a directory."""
        archive = git(self.top, "archive", "--format=tar", self.commit, "--", ":(glob)**/*.py")
        if len(archive) > ARCHIVE_BYTES_MAX:
            raise CommandError(f"{self.name} has more than {ARCHIVE_BYTES_MAX} bytes of Python")
        with tarfile.open(fileobj=BytesIO(archive)) as opened:
            opened.extractall(target, filter="data")


def open_git_tree(revision: str, near: Path) -> GitTree:
    """Return the tree of a revision in the repository around a path.

    A wrong call if there is no repository, or the repository has no such revision.
    """
    folder = near if near.is_dir() else near.parent
    top = _git_output(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise WrongCallError(f"{folder} is in no git repository: `--against git:` needs one")
    wanted = f"{revision}^{{commit}}"
    commit = _git_output(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", wanted)
    if not revision or commit is None:
        raise WrongCallError(
            f"git has no revision {revision!r}: fetch it first; a shallow checkout in CI has one "
            "commit only, and needs `fetch-depth: 0`"
        )
    return GitTree(Path(top.decode().rstrip("\n")).resolve(), commit.decode().strip(), revision)


def git(folder: Path, *words: str) -> bytes:
    """Run git and return its output; CommandError with the words of git if it fails."""
    done = _run_git(folder, words)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        shown = reason[-1] if reason else "no reason is given"
        raise CommandError(f"`git {words[0]}` failed in {folder}: {shown}")
    return done.stdout


def _git_output(folder: Path, *words: str) -> bytes | None:
    done = _run_git(folder, words)
    return None if done.returncode else done.stdout


def _run_git(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(  # noqa: S603 - a fixed program without a shell
            ["git", "-C", str(folder), *words],  # noqa: S607 - the user's own git
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS_MAX,
            check=False,
            env=environment,
        )
    except FileNotFoundError:
        raise CommandError("git is not installed, and `--against git:` needs it") from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"`git {words[0]}` took more than {GIT_SECONDS_MAX} s") from None


def is_schema_file(path: Path) -> bool:
    """Whether a path inside a directory names a schema, by its suffix, and is not hidden."""
    return path.suffix in SUFFIXES and not any(part.startswith(".") for part in path.parts)


def _schema_files(folder: Path) -> list[Path]:
    found = []
    for place, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        paths = (Path(place, name) for name in sorted(files))
        found += [path for path in paths if is_schema_file(path.relative_to(folder))]
        _limited(folder, found)
    return found


def _limited(folder: Path, paths: list[Path]) -> list[Path]:
    if len(paths) > FILES_MAX:
        raise CommandError(f"{folder} has more than {FILES_MAX} schema files: name a part of it")
    return paths


def _read(path: Path) -> str | None:
    try:
        if not path.is_file():
            return None
        _check_size(str(path), path.stat().st_size)
        return _decoded(str(path), path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None


def _check_size(name: str, size_bytes: int) -> None:
    if size_bytes > FILE_BYTES_MAX:
        raise CommandError(f"{name} has {size_bytes} bytes: a schema has {FILE_BYTES_MAX} at most")


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandError(f"{name} is not UTF-8") from None
