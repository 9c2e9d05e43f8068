"""Prints the README's table of install sizes: packages and bytes in fresh environments.

.venv/bin/python -m tools.install_sizes

For each row, a virtual environment without pip gets Ottla from this checkout, with the versions of
constraints.txt. Packages are counted, Ottla included, and the sizes of all files added up,
including byte code. It takes some minutes, and downloads packages that pip has not cached.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
EXTRAS: Final = ("", "zookeeper", "arrow", "spark", "pipelines")
_PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def measure(extra: str, folder: Path) -> tuple[int, int]:
    """Install Ottla with an extra; return how many packages came, and how many bytes."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    before = _size_bytes(folder)
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    constraints = ROOT / "constraints.txt"
    python = folder / "bin" / "python"
    install = [*_PIP, "--python", python, "install", "--compile", "-c", constraints, target]
    subprocess.run(install, check=True)
    return len([*packages.glob("*.dist-info")]), _size_bytes(folder) - before


def _size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def main() -> None:
    """Measure every row, and print the table."""
    print("| install | packages | on disk |\n| --- | ---: | ---: |")
    for extra in EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            count, size_bytes = measure(extra, Path(folder) / "environment")
        name = f"ottla[{extra}]" if extra else "ottla"
        print(f"| `{name}` | {count} | {size_bytes / 1e6:,.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
