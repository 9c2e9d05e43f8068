"""Class archives: made once, reused later, and optional: failures do no harm."""

import os
from pathlib import Path

import pytest

from ottla.pipelines.spark import class_archive as archives
from ottla.pipelines.spark.class_archive import ARCHIVES_MAX, class_archive
from ottla.pipelines.spark.java import Java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    home = tmp_path / "jdk"
    for name in ("lib/modules", "lib/server/classes.jsa"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"x")
    monkeypatch.setenv("OTTLA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(archives, "FREE_BYTES_MIN", 0)
    return Java(home, 17)


def jar(tmp_path: Path, content: bytes = b"classes") -> Path:
    path = tmp_path / "spark.jar"
    path.write_bytes(content)
    return path


def test_the_first_jvm_makes_the_archive_and_the_next_uses_it(java: Java, tmp_path: Path) -> None:
    first = class_archive(java, [jar(tmp_path)])
    assert first.unfinished is not None
    assert f"-XX:ArchiveClassesAtExit={first.unfinished}" in first.options
    first.unfinished.write_bytes(b"archive")
    first.keep()
    second = class_archive(java, [tmp_path / "spark.jar"])
    assert f"-XX:SharedArchiveFile={first.finished}" in second.options
    assert second.unfinished is None


def test_other_jars_need_another_archive(java: Java, tmp_path: Path) -> None:
    first = class_archive(java, [jar(tmp_path)])
    second = class_archive(java, [jar(tmp_path, b"newer classes")])
    assert first.finished != second.finished


def test_what_a_jvm_wrote_that_did_not_end_in_order_is_dropped(java: Java, tmp_path: Path) -> None:
    first = class_archive(java, [jar(tmp_path)])
    assert first.unfinished is not None
    first.unfinished.write_bytes(b"half")
    first.drop()
    assert not first.unfinished.exists()


def test_only_the_last_few_are_kept(java: Java, tmp_path: Path) -> None:
    for number in range(ARCHIVES_MAX + 2):
        made = class_archive(java, [jar(tmp_path, b"x" * (number + 1))])
        assert made.unfinished is not None
        assert made.finished is not None
        made.unfinished.write_bytes(b"archive")
        os.utime(made.unfinished, (number, number))
        made.keep()
        assert made.finished.exists()
    assert len(list((tmp_path / "cache" / "spark-classes").glob("*.jsa"))) == ARCHIVES_MAX


def test_a_cache_that_cannot_be_written_is_no_reason_not_to_start(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("OTTLA_CACHE_DIR", str(tmp_path / "file"))
    assert class_archive(java, [jar(tmp_path)]).options == ()
