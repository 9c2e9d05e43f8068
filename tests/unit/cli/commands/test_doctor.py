"""The checks of `ottla doctor` for features that a machine may lack."""

from pathlib import Path

import pytest

from ottla.cli.commands.doctor import (
    FREE_BYTES_LOW,
    FREE_BYTES_MIN,
    Extra,
    Verdict,
    check_codec,
    check_extra,
    check_free_bytes,
    check_python,
)
from ottla.cli.support.compiled_loops import LOOPS
from ottla.wire.records.compression.codecs import Compression

ROOT = Path(__file__).parents[4]


def test_every_compiled_loop_is_looked_for() -> None:
    sources = (ROOT / "src").rglob("*.pyx")
    names = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in sources}
    assert names == {*LOOPS, "ottla.wire.records._crc32c"}


@pytest.mark.parametrize(
    ("version", "implementation", "verdict", "word"),
    [
        ((3, 10, 9), "CPython", Verdict.ERROR, "install Python 3.11 or newer"),
        ((3, 11, 0), "CPython", Verdict.OK, "3.11.0"),
        ((3, 11, 0), "PyPy", Verdict.WARNING, "CPython alone"),
    ],
)
def test_python_must_be_new_enough(
    version: tuple[int, ...], implementation: str, verdict: Verdict, word: str
) -> None:
    found = check_python(version, implementation)
    assert found.verdict is verdict
    assert word in found.text


@pytest.mark.parametrize(
    ("packages", "problem", "verdict", "word"),
    [
        (("no_such_package",), "", Verdict.OK, "`pip install 'ottla[some]'` adds things"),
        (("rich", "no_such_package"), "", Verdict.WARNING, "no_such_package is missing"),
        (("rich",), "there is no Java", Verdict.WARNING, "there is no Java"),
        (("rich",), "", Verdict.OK, "rich "),
    ],
)
def test_an_extra_is_installed_as_a_whole_or_not_at_all(
    packages: tuple[str, ...], problem: str, verdict: Verdict, word: str
) -> None:
    found = check_extra(Extra("some", packages, "things", lambda: problem))
    assert found.verdict is verdict
    assert word in found.text


@pytest.mark.parametrize(
    ("free_bytes", "verdict"),
    [
        (FREE_BYTES_MIN - 1, Verdict.ERROR),
        (FREE_BYTES_MIN, Verdict.WARNING),
        (FREE_BYTES_LOW, Verdict.OK),
    ],
)
def test_a_full_disk_is_found(free_bytes: int, verdict: Verdict) -> None:
    assert check_free_bytes(Path("/data"), free_bytes).verdict is verdict


@pytest.mark.parametrize("codec", [one for one in Compression if one is not Compression.NONE])
def test_every_codec_works(codec: Compression) -> None:
    assert check_codec(codec).verdict is Verdict.OK
