"""`ottla doctor`, and a broker without compiled loops, as processes."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from ottla.cli.support.compiled_loops import LOOPS
from ottla.testing import Broker
from tests.clients.cli_calls import OTTLA, SECONDS_MAX, call, rows

ROOT = Path(__file__).parents[2]
AS_A_USER = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
"""Root may write anywhere, unless it gives up the right to."""


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with an Ottla without compiled loops, as a pure wheel installs it."""
    source = tmp_path_factory.mktemp("pure") / "src"
    ignored = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source, ignore=ignored)
    return {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}


def doctor(
    *arguments: str | Path, before: list[str] | None = None, **environment: str
) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code, and the findings by name of the check."""
    done = subprocess.run(
        [*(before or []), *OTTLA, "doctor", *map(str, arguments), "--format", "json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.stderr == ""
    found: list[dict[str, str]] = json.loads(done.stdout)
    return done.returncode, {row["check"]: row for row in found}


def test_a_sound_installation_has_no_error(tmp_path: Path) -> None:
    with Broker() as broker:
        shown = rows("doctor", "--data-dir", tmp_path / "data", brokers=broker.bootstrap_servers)
    assert "error" not in {row["status"] for row in shown}
    found = {row["check"]: row for row in shown}
    assert found["compiled loops"]["finding"] == f"all {len(LOOPS)}"
    assert broker.bootstrap_servers in found["cluster"]["finding"]
    assert not (tmp_path / "data").exists()


def test_a_cluster_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    for address, word in (
        ("127.0.0.1:1", "nothing listens on 127.0.0.1:1"),
        ("nowhere:port", "HOST:PORT"),
    ):
        done = call("doctor", "-b", address, "--data-dir", tmp_path, expect=1)
        last = done.stdout.decode().splitlines()[-1]
        assert last.split()[:2] == ["error", "cluster"]
        assert word in last


def test_missing_loops_are_a_warning_with_a_remedy(
    uncompiled: dict[str, str], tmp_path: Path
) -> None:
    code, found = doctor("--data-dir", tmp_path, **uncompiled)
    assert code == 0
    loops = found["compiled loops"]
    assert loops["status"] == "warning"
    assert f"{len(LOOPS)} of {len(LOOPS)} compiled loops are missing" in loops["finding"]
    assert "install a C compiler" in loops["finding"]


def test_a_broker_without_compiled_loops_logs_one_warning(
    uncompiled: dict[str, str], tmp_path: Path
) -> None:
    def log_of(environment: dict[str, str]) -> list[str]:
        start = ("start", "--port", "0", "--data-dir", tmp_path)
        start += ("-X", "ottla.admin.listener=", "-X", "ottla.schema.registry.listener=")
        command = [*OTTLA, *map(str, start)]
        lines = []
        with subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True
        ) as broker:
            assert broker.stderr is not None
            for line in broker.stderr:
                lines.append(line)
                if "listening on" in line:
                    broker.send_signal(signal.SIGTERM)
        assert broker.returncode == 0
        return [line for line in lines if "WARN" in line]

    assert log_of({**os.environ}) == []
    (warning,) = log_of(uncompiled)
    assert "8 of 8 compiled loops are missing" in warning
    assert "up to 20 times slower: run `ottla doctor` for advice" in warning


def test_a_low_limit_of_open_files_is_a_warning(tmp_path: Path) -> None:
    before = ["/bin/sh", "-c", 'ulimit -n 256; exec "$@"', "sh"]
    _, found = doctor("--data-dir", tmp_path, before=before)
    assert found["open files"]["status"] == "warning"
    assert "ulimit -n 65536" in found["open files"]["finding"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, is_there: bool) -> None:
    tmp_path.chmod(0o500)
    folder = tmp_path if is_there else tmp_path / "data"
    code, found = doctor("--data-dir", folder, before=AS_A_USER)
    tmp_path.chmod(0o700)
    assert (code, found["data dir"]["status"]) == (1, "error")
    assert f"may not write to {tmp_path}" in found["data dir"]["finding"]


def test_data_of_another_user_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "letters-0").mkdir(mode=0o500)
    code, found = doctor("--data-dir", tmp_path, before=AS_A_USER)
    assert (code, found["data dir"]["status"]) == (1, "error")
    assert f"may not write to {tmp_path / 'letters-0'}" in found["data dir"]["finding"]


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    code, found = doctor("--data-dir", tmp_path / "data")
    assert (code, found["data dir"]["status"]) == (1, "error")
