"""A journal of file moves: each decision is written before it is carried out."""

import json
import shutil
from pathlib import Path

from ottla.pipelines.connect.files.durable_files import write_json

Moves = dict[str, str]
"""The target of each staged file, relative to the root."""


class Journal:
    """A directory with a small file for each decision, and the staged files of the next."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root

    def staging(self, name: str) -> Path:
        """Return an empty staging directory; files of an earlier attempt are removed."""
        staged = self._folder / name
        shutil.rmtree(staged, ignore_errors=True)
        staged.parent.mkdir(parents=True, exist_ok=True)
        return staged

    def decide(self, name: str, moves: Moves, removed: tuple[str, ...] = ()) -> None:
        """Write a decision; from now on it will be carried out, even after a crash."""
        write_json(self._folder / f"{name}.json", {"moves": moves, "removed": removed})

    def finish(self, name: str) -> bool:
        """Carry a decision out, and return whether there was one; idempotent."""
        decision = self._folder / f"{name}.json"
        if not decision.exists():
            return False
        said = json.loads(decision.read_text(encoding="utf-8"))
        for staged, target in said["moves"].items():
            place = self._root / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if Path(staged).exists():
                Path(staged).replace(place)
        for file in said["removed"]:
            (self._root / file).unlink(missing_ok=True)
        if said["removed"]:
            decision.unlink()
        return True

    def last_batch_id(self) -> int:
        """Return the last batch that was decided, or -1."""
        return max(self._decided_batches(), default=-1)

    def forget_before(self, batch_id: int) -> None:
        """Remove the decisions of earlier batches, which will not be repeated."""
        for earlier, decision in self._decided_batches().items():
            if earlier < batch_id:
                decision.unlink()
        for staged in self._folder.glob("staged-*"):
            shutil.rmtree(staged, ignore_errors=True)

    def _decided_batches(self) -> dict[int, Path]:
        found = self._folder.glob("batch-*.json")
        return {int(file.stem.removeprefix("batch-")): file for file in found}
