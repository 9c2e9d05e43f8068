"""The documents are held against the code: examples are run, names and numbers are looked up."""

import doctest
import importlib
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ottla.wire.api_key import ApiKey

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(path for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern))
# Tests of the same names in tests/clients run the commands of the last two pages.
WITHOUT_EXAMPLES = ("status", "request-paths", "three-machines", "zookeeper-migration")
WITH_EXAMPLES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted({*ROOT.glob("docs/*.md")} - {ROOT / f"docs/{name}.md" for name in WITHOUT_EXAMPLES}),
]
STATUS_ROWS = [
    *(f"A{number}" for number in range(1, 13)),
    *(f"B{number}" for number in range(1, 7)),
    *(f"C{number}" for number in range(1, 7)),
    *(f"D{number}" for number in range(1, 6)),
    *"EFGHIJKLMN",
]
MEASURED_ON = {
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "python_full_version": "3.11.7",
    "python_version": "3.11",
    "sys_platform": "linux",
}
UNITS = {"": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}

FENCE = re.compile(r"^```.*$", re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
SOURCE_NAME = re.compile(r"`([\w/]+\.pyx?)`")
REPOSITORY_PATH = re.compile(r"`((?:src|tests|docs|tools|benchmarks|examples)/[\w./-]+)`")
LIMIT = re.compile(r"^\| `(\w+)` \| ([\d,]+) ?(\w*) \| `src/([\w/]+)\.py` \|", re.MULTILINE)

each_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_cells(text: str, heading: str) -> list[str]:
    """Return the first column of the table under a heading, without code marks."""
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip().strip("`") for row in rows[2:]]


@each_document
def test_the_examples_of_a_document_come_out_as_it_says(path: Path) -> None:
    # A closing fence would be taken for output; an empty line in its place keeps the numbering.
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    examples = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    assert bool(examples.examples) or path not in WITH_EXAMPLES, "no example is left"
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    assert runner.run(examples, out=said.append).failed == 0, "".join(said)


@each_document
def test_the_make_words_of_a_document_are_in_the_makefile(path: Path) -> None:
    words = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    code = "\n".join(CODE.findall(path.read_text(encoding="utf-8")))
    assert set(re.findall(r"\bmake ([a-z]+)", code)) <= words


@each_document
def test_what_a_document_points_to_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    targets = [path.parent / link for link in LINK.findall(text) if "://" not in link]
    targets += [ROOT / name for name in REPOSITORY_PATH.findall(text)]
    assert [str(target) for target in targets if not target.exists()] == []


def test_every_extra_that_the_readme_names_can_be_installed() -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    named = set(re.findall(r"ottla\[(\w+)\]", read("README.md")))
    assert named
    assert named <= set(extras)


def requirements(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # another Python than the README's may do without
        return []


def packages_with(name: str) -> set[str]:
    """Return the distributions that pip installs, by their metadata, where the README measured."""
    waiting, found = [Requirement(name)], set()
    while waiting:
        wanted = waiting.pop()
        found.add(canonicalize_name(wanted.name))
        for line in requirements(wanted.name):
            needed = Requirement(line)
            is_needed = needed.marker is None or any(
                needed.marker.evaluate({**MEASURED_ON, "extra": extra})
                for extra in wanted.extras or ("",)
            )
            is_new = canonicalize_name(needed.name) not in found or needed.extras
            if is_needed and is_new:
                waiting.append(needed)
    return found


def test_the_readme_counts_the_packages_of_every_install() -> None:
    rows = re.findall(r"^\| `(ottla.*?)`.*?\| (\d+) \|", read("README.md"), re.MULTILINE)
    assert len(rows) == 5
    for name, count in rows:
        assert len(packages_with(name)) == int(count), sorted(packages_with(name))


def test_the_status_page_has_every_row() -> None:
    rows = [
        cell.split()[0] for cell in first_cells(read("docs/status.md"), "Rows of the specification")
    ]
    assert rows == STATUS_ROWS


def test_the_architecture_names_the_packages_that_are_there_and_no_others() -> None:
    packages = [path.parent.name for path in sorted(ROOT.glob("src/ottla/*/__init__.py"))]
    assert sorted(first_cells(read("ARCHITECTURE.md"), "The packages")) == packages


def test_the_files_that_the_architecture_names_are_there_with_all_that_are_compiled() -> None:
    files = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("src/ottla/**/*.py*")]
    named = SOURCE_NAME.findall(read("ARCHITECTURE.md"))
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
    compiled = {Path(file).name for file in files if file.endswith(".pyx")}
    assert compiled - {Path(name).name for name in named} == set()


def test_the_broker_answers_what_its_page_says() -> None:
    rows = re.findall(r"^\| ([A-Z].+?) \| (\d[^|]*?) \|", read("docs/broker.md"), re.MULTILINE)
    said = {
        name: version
        for names, versions in rows
        for name, version in zip(names.split(", "), versions.split(", "), strict=True)
    }
    modules = {
        path.stem: importlib.import_module(f"ottla.broker.handlers.{path.stem}")
        for path in ROOT.glob("src/ottla/broker/handlers/[a-z]*.py")
    }
    refusing = modules.pop("unsupported")
    found = {name: module.VERSIONS for name, module in modules.items()}
    for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):  # refused, and offered
        found[key.name.lower()], _ = refusing.VERSIONS_AND_REFUSALS[key]
    ends = {
        name.title().replace("_", ""): "\N{EN DASH}".join(
            map(str, dict.fromkeys((versions[0], versions[-1])))
        )
        for name, versions in found.items()
    }
    assert said == ends


def test_the_folders_of_tests_are_all_explained() -> None:
    folders = {f"tests/{path.name}" for path in ROOT.glob("tests/[a-z]*") if path.is_dir()}
    assert folders - set(first_cells(read("CONTRIBUTING.md"), "Tests")) == set()


def test_the_limits_in_the_architecture_are_those_in_the_code() -> None:
    limits = LIMIT.findall(read("ARCHITECTURE.md"))
    assert len(limits) == len(first_cells(read("ARCHITECTURE.md"), "Limits"))
    for name, number, unit, file in limits:
        module = importlib.import_module(file.replace("/", "."))
        assert getattr(module, name) == int(number.replace(",", "")) * UNITS[unit], name


def test_the_glossary_is_in_order_and_says_each_word_once() -> None:
    words = re.findall(r"^- \*\*(.+?)\*\*", read("GLOSSARY.md"), re.MULTILINE)
    assert words == sorted(set(words), key=str.lower)


def test_decisions_are_numbered_without_a_gap_and_say_what_they_are_about() -> None:
    paths = sorted(ROOT.glob("docs/decisions/*.md"))
    assert paths
    assert [path.name[:4] for path in paths] == [f"{n:04}" for n in range(1, len(paths) + 1)]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name[:4]} "), path.name
        for heading in ("Context", "Decision", "Consequences"):
            assert f"\n## {heading}\n" in text, path.name
