"""The source distribution holds everything that a build of the compiled loops needs."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NATIVE = {".pyx", ".pxd", ".h"}
BUILD = "from setuptools import build_meta; build_meta.build_sdist('dist')"
SECONDS_MAX = 120


def test_the_source_distribution_holds_every_cython_source(tmp_path: Path) -> None:
    """Without them `setup.py` finds nothing to compile, and the wheel is slow without an error.

    `setup.py` needs Cython, which only an isolated build installs. MANIFEST.in and the layout in
    `tool.setuptools` decide which files are packed, so the test builds with these two alone.
    """
    pytest.importorskip("setuptools", reason="Python 3.12 and newer make venvs without setuptools")
    project = tmp_path / "project"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", project / "src", ignore=ignored)
    shutil.copy(ROOT / "MANIFEST.in", project)
    (project / "pyproject.toml").write_text(
        '[project]\nname = "ottla"\nversion = "0.1.0"\n'
        '[tool.setuptools]\ninclude-package-data = false\npy-modules = ["pyspark_ottla"]\n'
        '[tool.setuptools.packages.find]\nwhere = ["src"]\n'
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (archive,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    sources = {
        str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*") if path.suffix in NATIVE
    }
    assert sources
    assert sources <= names


def test_the_layout_of_the_test_project_is_that_of_the_project() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert options["include-package-data"] is False
    assert options["py-modules"] == ["pyspark_ottla"]
    assert options["packages"] == {"find": {"where": ["src"]}}
