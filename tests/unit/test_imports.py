"""`import ottla` is light, and a client loads only the modules that it needs."""

import subprocess
import sys
from importlib import metadata

import pytest

MODULES_MAX = 450
"""The limit of loaded modules per client; all three had 374 when this was written."""
PROGRAM = """
import sys
before = set(sys.modules)
{statement}
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


def loaded_by(statement: str) -> set[str]:
    program = PROGRAM.format(statement=statement)
    command = [sys.executable, "-I", "-c", program]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_ottla_alone_loads_nothing() -> None:
    assert [name for name in loaded_by("import ottla") if name.startswith("ottla.")] == []
    assert [name for name in loaded_by("import ottla.aio") if name.startswith("ottla.c")] == []


@pytest.mark.parametrize(
    "statement",
    ["from ottla import Producer, Consumer, Admin", "from ottla.aio import Producer, Consumer"],
)
def test_a_client_loads_no_broker_and_nothing_of_the_command_line(statement: str) -> None:
    loaded = loaded_by(statement)
    packages = {".".join(name.split(".")[:2]) for name in loaded}
    ours = {"broker", "cli", "machines", "replication", "simulation", "storage", "testing"}
    assert packages.isdisjoint(f"ottla.{name}" for name in ours)
    assert packages.isdisjoint({"pyarrow", "typer", "rich", "starlette", "uvicorn", "numpy"})
    assert len(loaded) <= MODULES_MAX


def test_every_name_that_is_offered_is_there() -> None:
    program = (
        "import ottla, ottla.aio\n"
        "for module in (ottla, ottla.aio):\n"
        "    for name in module.__all__: assert getattr(module, name).__module__\n"
        "print(hasattr(ottla, 'Nonsense'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_dir_lists_the_names_that_are_offered_and_the_version_without_loading_them() -> None:
    program = (
        "import sys, ottla\n"
        "names = dir(ottla)\n"
        "assert {*ottla.__all__, '__version__', '__doc__'} <= set(names), names\n"
        "assert set(names).isdisjoint({'Any', 'Final', 'TYPE_CHECKING', 'import_module'}), names\n"
        "assert not any(name.startswith('ottla.') for name in sys.modules)\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "print(ottla.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, metadata.version("ottla") + "\n"), done.stderr
