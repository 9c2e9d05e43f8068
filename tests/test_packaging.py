"""The source distribution and the wheel that is built from it have the compiled loops."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from ottla.cli.support.compiled_loops import LOOPS

ROOT = Path(__file__).parents[1]
NATIVE = {".pyx", ".pxd", ".h"}
BUILT_FROM = ("MANIFEST.in", "pyproject.toml", "setup.py", "README.md", "LICENSE")
BUILD_SDIST = "from setuptools import build_meta; build_meta.build_sdist('dist')"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
SECONDS_MAX = 600


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """Run a command without the variables that would lead it back to this environment."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environ,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from the files of a clean checkout."""
    project = tmp_path_factory.mktemp("packaging") / "project"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", project / "src", ignore=ignored)
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, project)
    run(sys.executable, "-W", "ignore", "-c", BUILD_SDIST, cwd=project)
    (archive,) = (project / "dist").glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel that `pip install SDIST` builds and installs.

    The build requirements come from this environment, so that no package index is needed. The
    compiler does not optimize, which takes half of the time.
    """
    folder = sdist.parent / "wheels"
    compiler = sdist.parent / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    build = (*PIP, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, sdist)
    run(*build, cwd=sdist.parent, CC=str(compiler))
    (built,) = folder.glob("*.whl")
    return built


def sources() -> set[Path]:
    """Return the Cython sources, below `src`."""
    paths = (ROOT / "src").rglob("*")
    found = {path.relative_to(ROOT / "src") for path in paths if path.suffix in NATIVE}
    assert found
    return found


def test_the_source_distribution_holds_every_cython_source(sdist: Path) -> None:
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {f"src/{path}" for path in sources()} <= names


def test_the_wheel_holds_every_compiled_loop_and_no_source_of_one(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    compiled = {name.partition(".")[0] for name in names if name.endswith(".so")}
    assert compiled == {str(p.with_suffix("")) for p in sources() if p.suffix == ".pyx"}
    assert not wheel.name.endswith("-none-any.whl")


def test_an_installed_wheel_loads_every_compiled_loop(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    (packages,) = environment.glob("lib/python*/site-packages")
    # A path in a .pth file is searched last, and .pth files in it do not count: this checkout's.
    dependencies = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    shown = run(environment / "bin" / "ottla", "doctor", "--format", "json", cwd=tmp_path)
    found = {row["check"]: row for row in json.loads(shown)}
    assert str(packages) in found["ottla"]["finding"]
    assert found["compiled loops"]["finding"] == f"all {len(LOOPS)}"
