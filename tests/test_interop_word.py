"""`make interop` prints a line for each missing requirement, and leaves no partial downloads."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.interop import NotHereError, check_java, copy_jars, fetch

ROOT = Path(__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make PATH an empty directory; `install` adds programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(path: Path, name: str, says: str, status: int = 0) -> None:
    """Install a program that prints a text."""
    program = path / name
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)


def test_without_java_it_is_skipped_and_nothing_has_failed(path: Path) -> None:
    call = [sys.executable, "-m", "tools.interop"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "interop: skipped, there is no java here\n"


def test_an_old_java_is_none(path: Path) -> None:
    install(path, "java", 'openjdk version "11.0.20" 2023-07-18')
    with pytest.raises(NotHereError, match="older than 17"):
        check_java()
    install(path, "java", 'openjdk version "21.0.1" 2023-10-17')
    check_java()


def test_without_maven_or_a_network_it_is_skipped(path: Path, tmp_path: Path) -> None:
    with pytest.raises(NotHereError, match="there is no mvn here"):
        copy_jars(tmp_path / "pom.xml", tmp_path)
    install(path, "mvn", "transfer failed: Unknown host: Name or service not known", status=1)
    with pytest.raises(NotHereError, match="mvn cannot reach"):
        copy_jars(tmp_path / "pom.xml", tmp_path)


def test_any_other_trouble_of_mavens_is_a_failure(path: Path, tmp_path: Path) -> None:
    install(path, "mvn", "Could not find artifact", status=1)
    with pytest.raises(SystemExit, match="Could not find artifact"):
        copy_jars(tmp_path / "pom.xml", tmp_path)


def test_what_is_fetched_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    pom, folder = tmp_path / "pom.xml", tmp_path / "libs"
    pom.touch()

    def half(pom: Path, unfinished: Path) -> None:
        (unfinished / "a.jar").touch()
        raise NotHereError("the network is gone")

    def whole(pom: Path, unfinished: Path) -> None:
        assert list(unfinished.iterdir()) == []
        (unfinished / "a.jar").touch()

    with pytest.raises(NotHereError):
        fetch("Kafka", folder, pom, half)
    assert not folder.exists()
    fetch("Kafka", folder, pom, whole)
    assert (folder / "a.jar").exists()
    fetch("Kafka", folder, pom, half)
