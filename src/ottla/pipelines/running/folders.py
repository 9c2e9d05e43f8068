"""The files of pipelines: one directory each, below one state directory.

STATE/pipelines/orders/lock              held by the process that runs it
STATE/pipelines/orders/record.json       the process that runs it, or its outcome
STATE/pipelines/orders/progress.json     the progress of its flows
STATE/pipelines/orders/checkpoints/…     Spark's, one directory for each flow
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.runtime.small_files import write_atomically

STATE_DIR: Final = "OTTLA_STATE_DIR"


def state_folder(named: Path | None = None) -> Path:
    """Return the state directory: as named, OTTLA_STATE_DIR, or the user's own."""
    if named is not None:
        return named
    if said := os.environ.get(STATE_DIR):
        return Path(said)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ottla"


@dataclass(frozen=True, slots=True)
class PipelineDirectory:
    """The directory of one pipeline."""

    path: Path

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.path.name

    @property
    def lock(self) -> Path:
        """Locked by the process that runs the pipeline."""
        return self.path / "lock"

    @property
    def record(self) -> Path:
        """The file about the process that runs it, or its outcome."""
        return self.path / "record.json"

    @property
    def progress(self) -> Path:
        """The file with the progress of its flows."""
        return self.path / "progress.json"

    @property
    def checkpoints(self) -> Path:
        """Spark's checkpoints, one directory for each flow."""
        return self.path / "checkpoints"


def pipeline_folder(state: Path, name: str) -> PipelineDirectory:
    """Return the directory of a pipeline, which may not exist."""
    return PipelineDirectory(state / "pipelines" / name)


def all_pipelines(state: Path) -> list[PipelineDirectory]:
    """Return the directories of all pipelines that have run and were not deleted."""
    found = sorted((state / "pipelines").glob("*/record.json"))
    return [PipelineDirectory(path.parent) for path in found]


def read_json(path: Path) -> Any:
    """Read a file; None if it does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_json(path: Path, value: object) -> None:
    """Replace a file; readers see the old content or the new content."""
    write_atomically(path, json.dumps(value, indent=2))
