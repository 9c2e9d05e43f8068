"""The registry names the process of a pipeline, and never signals another process."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.pipelines.running import registry
from ottla.pipelines.running.folders import PipelineDirectory, all_pipelines, pipeline_folder
from ottla.pipelines.running.registry import (
    Outcome,
    PipelineError,
    ProcessName,
    Record,
    claimed,
    is_running,
    present_record,
    stop,
)

HOLDER = """
import sys, time
from pathlib import Path
from ottla.pipelines.running.folders import PipelineDirectory
from ottla.pipelines.running.registry import Record, claimed
folder = PipelineDirectory(Path(sys.argv[1]))
with claimed(folder):
    Record.of_this_process("orders.py", "127.0.0.1:9092", "").write(folder)
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> PipelineDirectory:
    return pipeline_folder(tmp_path, "orders")


@pytest.fixture
def holder(folder: PipelineDirectory) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process, which runs the pipeline."""
    command = [sys.executable, "-c", HOLDER, str(folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_one_process_at_a_time_runs_a_pipeline(
    folder: PipelineDirectory, holder: "subprocess.Popen[bytes]"
) -> None:
    assert is_running(folder)
    sentence = f"already running as process {holder.pid}: `ottla pipeline stop orders` stops it"
    with pytest.raises(PipelineError, match=sentence), claimed(folder):
        pass
    assert [each.name for each in all_pipelines(folder.path.parents[1])] == ["orders"]


def test_a_process_that_was_killed_is_known_to_have_died_and_can_be_followed(
    folder: PipelineDirectory, holder: "subprocess.Popen[bytes]"
) -> None:
    holder.kill()
    holder.wait()
    record = present_record(folder)
    assert record is not None
    assert record.outcome is Outcome.DIED
    with claimed(folder):
        assert is_running(folder)


def test_stop_ends_the_process_that_holds_the_lock(
    folder: PipelineDirectory, holder: "subprocess.Popen[bytes]"
) -> None:
    stop(folder, 60)
    assert holder.wait(60) == -signal.SIGTERM


def test_a_process_that_only_has_the_same_number_is_not_signalled(
    folder: PipelineDirectory, holder: "subprocess.Popen[bytes]"
) -> None:
    record = Record.read(folder)
    assert record is not None
    replace(record, process=ProcessName(holder.pid, 1)).write(folder)
    with pytest.raises(PipelineError, match="a process that is not to be seen from here"):
        stop(folder, 60)
    assert holder.poll() is None


def test_what_does_not_run_cannot_be_stopped(folder: PipelineDirectory) -> None:
    with pytest.raises(PipelineError, match="there is no pipeline orders"):
        stop(folder, 60)
    with claimed(folder):
        Record.of_this_process("orders.py", "b", "").write(folder)
    with pytest.raises(PipelineError, match="pipeline orders is not running"):
        stop(folder, 60)


def test_a_jvm_that_a_killed_process_has_left_is_waited_for_and_then_ended(
    folder: PipelineDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "REMAINS_SECONDS_MAX", 0.2)
    with subprocess.Popen(["/bin/sleep", "600"]) as left:
        with claimed(folder):
            record = Record.of_this_process("orders.py", "b", "")
            dead = ProcessName(record.process.pid, 1)
            replace(record, process=dead, jvm=ProcessName.of(left.pid)).write(folder)
        with claimed(folder):
            assert is_running(folder)
        assert left.wait(60) == -signal.SIGKILL
