"""The options of a pipeline's run."""

from dataclasses import dataclass, field
from pathlib import Path

from ottla.pipelines.streams.pace import Pace


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The options of a run."""

    state_dir: Path | None = None
    checkpoint_dir: str | None = None
    """The directory of checkpoints, if not the state directory; a cluster needs a shared one."""
    pace: Pace = field(default_factory=Pace)
    from_beginning: bool = False
    file: str = ""
