"""docs/request-paths.md: each file exists, and its caller imports it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ottla"
_ROW = re.compile(r"\| `(\S+\.py)` \| [^|]+ \| (?:`(\S+\.py)` )?\|$")


class Step(NamedTuple):
    path: str
    file: str
    caller: str | None


def steps() -> Iterator[Step]:
    path = ""
    for line in (ROOT / "docs" / "request-paths.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            path = line.removeprefix("## ")
        elif line.startswith("| `"):
            row = _ROW.match(line)
            assert row is not None, f"not a row of a request path: {line}"
            yield Step(path, row[1], row[2])


def modules_imported_by(file: str) -> set[str]:
    """Return the names of all modules, and of all their attributes, that a file imports."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("step", list(steps()), ids=lambda step: f"{step.path}: {step.file}")
def test_each_step_is_a_file_that_its_caller_imports(step: Step) -> None:
    assert (SOURCE / step.file).is_file()
    if step.caller is not None:
        module = "ottla." + step.file.removesuffix(".py").replace("/", ".")
        assert module in modules_imported_by(step.caller)


def test_there_are_eight_paths_and_only_entry_points_have_no_caller() -> None:
    found = list(steps())
    assert len({step.path for step in found}) == 8
    entries = {step.file for step in found if step.caller is None}
    assert entries == {"cli/commands/topic.py", "cli/commands/start.py", "pipelines/datasource.py"}
