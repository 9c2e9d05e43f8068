"""Schemas in files and classes, with the references between files.

An import of Protobuf and a `$ref` of JSON Schema lead to files beside the schema, above it, or in
an included directory. A name that an Avro schema does not define is looked for in the `.avsc` files
beside it and in the included directories.
"""

import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urldefrag

from ottla.cli.support.exit_codes import CommandError, WrongCallError
from ottla.cli.support.file_trees import SUFFIXES, FileTree, GitTree
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import Schema, SchemaType

TYPE_BY_SUFFIX: Final = {
    ".avsc": SchemaType.AVRO,
    ".json": SchemaType.JSON,
    ".proto": SchemaType.PROTOBUF,
}
DEPTH_MAX: Final = 10
"""How deep files may refer to files, as in the registry's client."""
CLASS_SECONDS_MAX: Final = 60
EXTRA: Final = "schemas need packages that are not installed: pip install 'ottla[schemas]'"
CLASS_NAME: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)", re.ASCII)
_IMPORT: Final = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;', re.MULTILINE)
_NAMED_TYPES: Final = ("record", "enum", "fixed", "error")
_PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_CLASS_IN_OTHER_FILES: Final = (
    "from ottla.cli.schemas.schema_sources import write_class; write_class()"
)


@dataclass(frozen=True, slots=True)
class LocalSchema:
    """A schema in a file or class."""

    name: str
    """As on the command line: a file, or `package.module:Class`."""
    schema: Schema
    parsed: ParsedSchema
    references: Mapping[str, "LocalSchema"] = field(default_factory=dict)
    """The schemas that this schema refers to directly, by the names that it uses."""
    path: Path | None = None
    line: int = 1
    """Where the schema begins in the file."""


class InvalidFileError(InvalidSchemaError):
    """A file has no valid schema; the message begins with its path."""


class LocalSchemas:
    """The schemas of one tree, each parsed once."""

    def __init__(self, tree: FileTree, included: Sequence[Path]) -> None:
        self.tree = tree
        self._included = included
        self._loaded: dict[Path, LocalSchema | None] = {}
        self._loading: list[Path] = []
        self._paths_by_name: dict[Path, dict[str, Path]] = {}

    def load(self, path: Path) -> LocalSchema | None:
        """Parse a file; None if the tree does not have it. InvalidFileError if it is not valid."""
        if path in self._loaded:
            return self._loaded[path]
        text = self.tree.read(path)
        self._loaded[path] = found = None if text is None else self._parse(path, text)
        return found

    def _parse(self, path: Path, text: str) -> LocalSchema:
        if path in self._loading or len(self._loading) > DEPTH_MAX:
            chain = " → ".join(one.name for one in [*self._loading, path])
            raise InvalidFileError(
                f"{shown_path(path)}: files refer in a circle, or too deep: {chain}"
            )
        self._loading.append(path)
        schema_type = TYPE_BY_SUFFIX[path.suffix]
        try:
            references = self._references(schema_type, path, text)
            parsed = parse(schema_type, text, references)
        except InvalidSchemaError as error:
            # An error of a file that this file refers to has the name of that file already.
            if isinstance(error, InvalidFileError):
                raise
            raise InvalidFileError(f"{shown_path(path)}: {error}") from None
        finally:
            self._loading.pop()
        return LocalSchema(shown_path(path), Schema(text, schema_type), parsed, references, path)

    def _references(self, schema_type: SchemaType, path: Path, text: str) -> dict[str, LocalSchema]:
        if schema_type is SchemaType.AVRO:
            places = self._avro_places(path, text)
        else:
            is_protobuf = schema_type is SchemaType.PROTOBUF
            names = _IMPORT.findall(text) if is_protobuf else _outer_references(_json_of(text))
            places = {name: self._places(path, name) for name in dict.fromkeys(names)}
        found = {}
        for name, candidates in places.items():
            loaded = (self.load(one) for one in candidates if one != path)
            reference = next((one for one in loaded if one is not None), None)
            if reference is not None and reference.schema.type is schema_type:
                found[name] = reference
        return found

    def _places(self, path: Path, name: str) -> list[Path]:
        """Return the paths that a file's reference may mean, the nearest first."""
        if "://" in name or Path(name).suffix not in SUFFIXES:
            return []
        folders = [path.parent, *self._included, *path.parent.parents]
        return list(dict.fromkeys((folder / name).resolve() for folder in folders))

    def _avro_places(self, path: Path, text: str) -> dict[str, list[Path]]:
        wanted = list(_unknown_names(_json_of(text)))
        if not wanted:
            return {}
        folders = dict.fromkeys([path.parent, *self._included])
        known: dict[str, Path] = {}
        for folder in folders:
            known = self._names_in(folder) | known
        return {name: [known[name]] for names in wanted for name in names if name in known}

    def _names_in(self, folder: Path) -> dict[str, Path]:
        """Return the `.avsc` files below a directory by the full name of their schema."""
        if folder not in self._paths_by_name:
            paths = [one for one in self.tree.schema_files(folder) if one.suffix == ".avsc"]
            names = {one: _full_name(_json_of(self.tree.read(one) or ""), "") for one in paths}
            found = {name: one for one, name in names.items() if name is not None}
            self._paths_by_name[folder] = found
        return self._paths_by_name[folder]


def parse(
    schema_type: SchemaType, text: str, references: Mapping[str, LocalSchema]
) -> ParsedSchema:
    """Parse a text with parsed references; CommandError if a package is missing."""
    try:
        found = {name: reference.parsed for name, reference in references.items()}
        parsed: ParsedSchema = parse_schema(schema_type, text, found)
    except ImportError:
        raise CommandError(EXTRA) from None
    return parsed


def shown_path(path: Path) -> str:
    """Return a path relative to the current directory, if it is below it."""
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def expanded(tree: FileTree, words: Sequence[str]) -> list[Path | str]:
    """Return the files of the command line, also inside directories, and the classes' names.

    A wrong call if a word is no file, directory or class.
    """
    found: list[Path | str] = []
    for word in words:
        path = Path(word).resolve()
        if path.is_dir():
            found += tree.schema_files(path)
        elif path.is_file():
            if path.suffix not in SUFFIXES:
                raise WrongCallError(f"{word}: a schema's file ends with {', '.join(SUFFIXES)}")
            found.append(path)
        elif CLASS_NAME.fullmatch(word):
            found.append(word)
        else:
            raise WrongCallError(f"{word!r} is no file, no directory, and no package.module:Class")
    return list(dict.fromkeys(found))


# -- references inside a text ---------------------------------------------------------------------


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # the parser of the language has the error, with its place


def _nodes(document: Any) -> Iterator[dict[str, Any]]:
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending += node.values()
        elif isinstance(node, list):
            pending += node


def _outer_references(document: Any) -> Iterator[str]:
    for node in _nodes(document):
        reference = node.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            yield urldefrag(reference).url


def _full_name(node: Any, namespace: str) -> str | None:
    if not isinstance(node, dict) or not isinstance(node.get("name"), str):
        return None
    name: str = node["name"]
    if "." in name:
        return name
    own = node.get("namespace", namespace)
    return f"{own}.{name}" if own and isinstance(own, str) else name


def _unknown_names(document: Any) -> Iterator[tuple[str, ...]]:
    """Yield the names that an Avro schema uses and does not define, each as it may be meant."""
    defined: set[str] = set()
    used: dict[tuple[str, ...], None] = {}
    pending: list[tuple[Any, str]] = [(document, "")]
    while pending:
        node, namespace = pending.pop()
        if isinstance(node, str) and node not in _PRIMITIVES:
            is_full = "." in node or not namespace
            used[(node,) if is_full else (f"{namespace}.{node}", node)] = None
        elif isinstance(node, list):
            pending += [(branch, namespace) for branch in node]
        elif isinstance(node, dict):
            full_name = _full_name(node, namespace)
            if node.get("type") in _NAMED_TYPES and full_name is not None:
                defined.add(full_name)
                namespace = full_name.rpartition(".")[0]
            pending += [(inner, namespace) for inner in _types_in(node)]
    yield from (names for names in used if not defined.intersection(names))


def _types_in(node: Mapping[str, Any]) -> Iterator[Any]:
    kind = node.get("type")
    if kind == "array":
        yield node.get("items")
    elif kind == "map":
        yield node.get("values")
    elif not (isinstance(kind, str) and kind in _NAMED_TYPES):
        yield kind
    fields = node.get("fields")
    for row in fields if isinstance(fields, list) else ():
        if isinstance(row, dict):
            yield row.get("type")


# -- classes --------------------------------------------------------------------------------------


def load_class(word: str) -> LocalSchema:
    """Import a class and return its schema. A wrong call if there is no such class."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    cls = _imported(word)
    if cls is None:
        raise WrongCallError(f"{word!r}: there is no such class")
    path, line = _place_of(cls)
    made = _of_rows(word, _rows_of(word, cls))
    return LocalSchema(word, made.schema, made.parsed, made.references, path, line)


def load_class_at(tree: GitTree, word: str) -> LocalSchema | None:
    """Return the schema that a class had in a commit; None if the commit does not have the class.

    The commit's Python files are imported by another process, from a temporary directory.
    """
    with TemporaryDirectory(prefix="ottla-") as name:
        folder = Path(name)
        tree.extract_python(folder)
        paths = [_moved(Path(place or "."), tree.top, folder) for place in sys.path]
        here = _moved(Path.cwd(), tree.top, folder)
        command = [sys.executable, "-P", "-c", _CLASS_IN_OTHER_FILES, word, here, *paths]
        try:
            done = subprocess.run(  # noqa: S603 - this Python, without a shell
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CLASS_SECONDS_MAX,
                check=False,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            raise CommandError(
                f"{word} of {tree.name}: its import took more than {CLASS_SECONDS_MAX} s"
            ) from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise CommandError(f"{tree.name}: {lines[-1].removeprefix('ottla: ') if lines else word}")
    rows = json.loads(done.stdout.splitlines()[-1])
    return _of_rows(word, rows) if rows else None


def write_class() -> None:
    """Write the schema of a class as JSON: the entry point of that process."""
    _, word, *paths = sys.argv
    sys.path[:0] = paths
    try:
        cls = _imported(word)
        sys.stdout.write(json.dumps([] if cls is None else _rows_of(word, cls)) + "\n")
    except CommandError as error:
        raise SystemExit(f"ottla: {error}") from None


def _moved(place: Path, top: Path, folder: Path) -> str:
    resolved = place.resolve()
    if resolved.is_relative_to(top):
        copy = folder / resolved.relative_to(top)
        if copy.is_dir():
            return str(copy)
    return str(resolved)


def _imported(word: str) -> Any:
    """Import a class; None if the module or the class is missing."""
    module_name, _, name = word.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            return None
        raise CommandError(f"{word} cannot be imported: {error}") from None
    except Exception as error:  # noqa: BLE001 - a module may raise anything
        raise CommandError(f"{word} cannot be imported: {type(error).__name__}: {error}") from None
    return getattr(module, name, None)


def _rows_of(word: str, cls: Any) -> list[tuple[str, str, str]]:
    """Return name, type and text of the schemas of a class: its references come first."""
    from ottla.clients.schemas.value_forms import form_of  # noqa: PLC0415 - imports the languages

    try:
        form = form_of(cls)
    except TypeError:
        raise CommandError(
            f"{word} is no class with a schema: expected a dataclass, a TypedDict, a msgspec or "
            "pydantic model, or a Protobuf message"
        ) from None
    except InvalidSchemaError as error:
        raise CommandError(f"{word}: {error}") from None
    assert form.schema is not None
    rows = [(name, schema.type.value, schema.text) for name, schema in form.dependencies.items()]
    return [*rows, (word, form.schema.type.value, form.schema.text)]


def _of_rows(word: str, rows: Sequence[Sequence[str]]) -> LocalSchema:
    references: dict[str, LocalSchema] = {}
    for name, kind, text in rows:
        schema_type = SchemaType(kind)
        parsed = parse(schema_type, text, references)
        references[name] = LocalSchema(name, Schema(text, schema_type), parsed, dict(references))
    return references[word]


def _place_of(cls: Any) -> tuple[Path | None, int]:
    try:
        path = inspect.getsourcefile(cls)
        return (None if path is None else Path(path).resolve()), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return None, 1
