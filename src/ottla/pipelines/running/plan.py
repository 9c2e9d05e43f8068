"""What is said about a run of a pipeline."""

from dataclasses import dataclass, field
from pathlib import Path

from ottla.pipelines.streams.pace import Pace


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How a pipeline is to be run."""

    state_dir: Path | None = None
    checkpoint_dir: str | None = None
    """Where checkpoints are, if not in the state folder: on a cluster, what all machines see."""
    pace: Pace = field(default_factory=Pace)
    from_beginning: bool = False
    file: str = ""
