"""`ottla schema`: schemas in the registry, in files and in git, and their compatibility."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer

from ottla.cli.commands.consume import Reading, read
from ottla.cli.schemas.schema_against import check_all, included_folders, open_against
from ottla.cli.schemas.schema_check import (
    DEFAULT_LEVEL,
    CheckedSchema,
    parse_level,
    with_readers,
    write_annotations,
    write_json,
    write_text,
)
from ottla.cli.schemas.schema_evolution import findings_against, plan_evolution, show_plan
from ottla.cli.schemas.schema_fields import changes
from ottla.cli.schemas.schema_inference import JsonSample, infer, values_in
from ottla.cli.schemas.schema_registry import (
    confirmed,
    find_registered,
    is_local,
    load_local,
    load_named,
    register_references,
    shown_registry,
    split_version,
    subject_for,
    with_registry,
)
from ottla.cli.schemas.schema_sources import (
    LocalSchema,
    LocalSchemas,
    expanded,
    load_class,
)
from ottla.cli.support.exit_codes import FAILURE, CommandError, WrongCallError, one_sentence, say
from ottla.cli.support.file_trees import WorkingTree
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    DEFAULT_REGISTRY,
    Brokers,
    Format,
    RegistryUrl,
    Settings,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, Row, show, show_one
from ottla.cli.support.positions import END, parse_position
from ottla.cli.support.standard_input import Consent, DryRun, Yes, counted
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.records.serializers import complete
from ottla.clients.schemas.registry_calls import RegistryError
from ottla.clients.schemas.registry_client import RegistryClient
from ottla.schemas.schema import SchemaType

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
SAMPLE_DEFAULT: Final = 1_000
SAMPLE_MAX: Final = 1_000_000
LIST_COLUMNS: Final = ("SUBJECT", "VERSION", "ID", "TYPE")
DIFF_COLUMNS: Final = ("CHANGE", "FIELD", "BEFORE", "AFTER")
Subject = Annotated[str, typer.Argument(metavar="SUBJECT[@VERSION]", help="A subject.")]
MaybeSubject = Annotated[
    str | None, typer.Argument(metavar="[SUBJECT]", help="A subject; without it, all subjects.")
]
Template = Annotated[
    str | None,
    typer.Option(
        "--subject",
        "-s",
        metavar="NAME",
        help="The subject, maybe with {stem} (of the file) and {record}; default: {stem}.",
    ),
]
Included = Annotated[
    list[str] | None,
    typer.Option("--include", "-I", metavar="DIR", help="Look for references here. Repeatable."),
]
Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE…", help="Files, directories, and package.module:Class."),
]
schemas = typer.Typer(no_args_is_help=True)


class ReportFormat(StrEnum):
    """The format of a check's report."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


class InferredType(StrEnum):
    """The language of an inferred schema."""

    AVRO = "avro"
    JSON = "json"


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(schemas, name=name, help=summary)


# -- schemas in the registry ----------------------------------------------------------------------


@schemas.command("list")
@schemas.command("ls", hidden=True)
def list_schemas(
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Only subjects with this prefix.")
    ] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Show soft-deleted subjects, too.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--versions", help="Show all versions, not only the latest.")
    ] = False,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """List subjects with their latest version (also: ls)."""
    query = {"latestOnly": str(not every).lower(), "deleted": str(deleted).lower()}
    if prefix:
        query["subjectPrefix"] = prefix

    def work(client: RegistryClient) -> Any:
        return complete(client.calls.ask("GET", f"/schemas?{urlencode(query)}"))

    rows = [
        {
            "SUBJECT": one.get("subject"),
            "VERSION": one.get("version"),
            "ID": one.get("id"),
            "TYPE": one.get("schemaType") or SchemaType.AVRO.value,
        }
        for one in with_registry(registry, work)
    ]
    show(rows, LIST_COLUMNS, form)


@schemas.command("get")
@schemas.command("info", hidden=True)
def get(
    name: Annotated[
        str, typer.Argument(metavar="SUBJECT[@VERSION]|id:N", help="The schema to show.")
    ],
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the text of a schema; with `--format json`, also its id and references."""
    found = with_registry(registry, lambda client: find_registered(client, name))
    if form is OutputFormat.TABLE:
        sys.stdout.write(_readable(found.schema.type, found.schema.text))
        return
    references = [
        {"name": one.name, "subject": one.subject, "version": one.version}
        for one in found.schema.references
    ]
    row = {"SUBJECT": found.subject, "VERSION": found.version, "ID": found.id}
    row |= {"GUID": found.guid, "TYPE": found.schema.type.value}
    show_one({**row, "REFERENCES": references, "SCHEMA": found.schema.text}, form)


def _readable(schema_type: SchemaType, text: str) -> str:
    if schema_type is not SchemaType.PROTOBUF:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text if text.endswith("\n") else f"{text}\n"


@schemas.command("register")
def register_schemas(
    files: Files,
    subject: Template = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Let the registry normalize the text.")
    ] = False,
    dry_run: DryRun = False,
    included: Included = None,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Register schemas, and before them the files that they refer to."""
    folders = included_folders(files, included)

    def work(client: RegistryClient) -> list[Row]:
        loaded = _load_all(files, folders)
        names = [subject_for(subject, local) for local in loaded]
        if len(set(names)) < len(names):
            raise WrongCallError("two schemas have the same subject: give {stem} in --subject")
        return [
            _registered(client, name, local, normalize=normalize, is_dry_run=dry_run)
            for name, local in zip(names, loaded, strict=True)
        ]

    show(with_registry(registry, work), ("SUBJECT", "VERSION", "ID", "STATUS"), form)


def _load_all(words: Sequence[str], folders: list[Path]) -> list[LocalSchema]:
    tree = WorkingTree()
    files = LocalSchemas(tree, folders)
    found = [
        load_class(one) if isinstance(one, str) else files.load(one)
        for one in expanded(tree, words)
    ]
    return [one for one in found if one is not None]


def _registered(
    client: RegistryClient, subject: str, local: LocalSchema, *, normalize: bool, is_dry_run: bool
) -> Row:
    if is_dry_run:
        found = findings_against(client, subject, local)
        status = f"would be refused: {found[0].message}" if found else "could be registered"
        return {"SUBJECT": subject, "STATUS": status}
    schema = replace(local.schema, references=register_references(client, local))
    client.register(subject, schema, normalize=normalize)
    made = client.look_up(subject, schema, normalize=normalize)
    return {"SUBJECT": subject, "VERSION": made.version, "ID": made.id, "STATUS": "registered"}


@schemas.command("delete")
@schemas.command("rm", hidden=True)
def delete(
    names: Annotated[
        list[str],
        typer.Argument(metavar="SUBJECT[@VERSION]…", help="Subjects or versions."),
    ],
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Also remove it for good: its id finds nothing.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Delete subjects or versions, after asking."""
    consent = Consent(yes, dry_run)

    def work(client: RegistryClient) -> list[Row]:
        effects = [_deletion(client, name, is_permanent=permanent) for name in names]
        if not confirmed(client, effects, consent):
            return [{"SUBJECT": name, "STATUS": "would be deleted"} for name in names]
        return [
            {"SUBJECT": name, "STATUS": _delete(client, name, is_permanent=permanent)}
            for name in names
        ]

    show(with_registry(registry, work), ("SUBJECT", "STATUS"), form)


def _deletion(client: RegistryClient, name: str, *, is_permanent: bool) -> str:
    subject, version = split_version(name)
    numbers = client.versions(subject, deleted=is_permanent)
    if "@" in name and version is None:
        version = client.latest_version(subject).version
    if version is not None and version not in numbers:
        raise CommandError(f"subject {subject} has no version {version}")
    shown = counted(len(numbers), "version") if version is None else f"version {version}"
    how = "for good" if is_permanent else "softly: --permanent removes it for good"
    return f"delete subject {subject}: {shown}, {how}"


def _delete(client: RegistryClient, name: str, *, is_permanent: bool) -> str:
    subject, version = split_version(name)
    is_version = name != subject
    if is_version and version is None:
        version = client.latest_version(subject).version

    def remove(*, permanent: bool) -> None:
        if version is None:
            client.delete_subject(subject, permanent=permanent)
        else:
            client.delete_version(subject, version, permanent=permanent)

    live = _live_versions(client, subject)
    if live and (version is None or version in live):
        remove(permanent=False)
    if is_permanent:
        remove(permanent=True)
    return "deleted for good" if is_permanent else "deleted"


def _live_versions(client: RegistryClient, subject: str) -> list[int]:
    try:
        return client.versions(subject)
    except RegistryError as error:
        if error.status == 404:
            return []
        raise


@schemas.command("compatibility")
def compatibility(
    subject: MaybeSubject = None,
    level: Annotated[
        str | None, typer.Option("--set", metavar="LEVEL", help="Such as full_transitive.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Remove the level: the global level applies.")
    ] = False,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show, set or reset the compatibility level of a subject, or the global level."""
    if level is not None and reset:
        raise WrongCallError("--set sets a level, --reset removes it: leave one out")
    wanted = None if level is None else parse_level(level)

    def work(client: RegistryClient) -> str:
        if reset:
            client.set_config({"compatibility": None}, subject)
        elif wanted is not None:
            client.set_config({"compatibility": wanted}, subject)
        return str(client.config(subject).get("compatibilityLevel") or DEFAULT_LEVEL)

    found = with_registry(registry, work)
    show_one({"SUBJECT": subject or "(global)", "COMPATIBILITY": found}, form)


@schemas.command("mode")
def mode(
    subject: MaybeSubject = None,
    wanted: Annotated[
        str | None, typer.Option("--set", metavar="MODE", help=f"One of {', '.join(MODES)}.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Remove the mode: the global mode applies.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Set IMPORT even if there are schemas.")
    ] = False,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show, set or reset the mode of a subject, or the global mode."""
    if wanted is not None and reset:
        raise WrongCallError("--set sets a mode, --reset removes it: leave one out")
    if reset and subject is None:
        raise WrongCallError("the global mode is not removed: give --set READWRITE, or a subject")
    if wanted is not None and wanted.upper() not in MODES:
        raise WrongCallError(f"--set is one of {', '.join(MODES)}, not {wanted!r}")

    def work(client: RegistryClient) -> str:
        if reset and subject is not None:
            client.delete_mode(subject)
        elif wanted is not None:
            client.set_mode(wanted.upper(), subject, force=force)
        return client.mode(subject)

    found = with_registry(registry, work)
    show_one({"SUBJECT": subject or "(global)", "MODE": found}, form)


# -- comparisons ----------------------------------------------------------------------------------


@schemas.command("check")
def check(
    files: Files,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="PLACE", help="git:REVISION, registry, http://…, or a directory."
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="The registry's, or else backward."),
    ] = None,
    subject: Template = None,
    included: Included = None,
    form: Annotated[
        ReportFormat, typer.Option("--format", help="How to show the result.")
    ] = ReportFormat.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    brokers: Annotated[
        str | None,
        typer.Option(
            "--brokers",
            "-b",
            metavar="HOST:PORT,…",
            help="Also name the consumer groups that read the topic of each subject.",
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Check that schemas are valid, and compatible with earlier versions; for CI.

    Exit codes: 0 if all are good, 1 if any is refused, 2 if the check was not possible.
    """
    wanted = None if level is None else parse_level(level)
    folders = included_folders(files, included)
    try:
        with open_against(against, registry, subject, files, folders) as place:
            results = check_all(files, place, wanted, subject, folders)
        if brokers is not None:
            found = results
            results = with_cluster(brokers, settings, lambda view: with_readers(view, found))
    except CommandError as error:
        raise WrongCallError(str(error)) from None
    _report(results, ReportFormat.JSON if as_json else form)
    if not all(result.is_good for result in results):
        raise SystemExit(FAILURE)


def _report(results: Sequence[CheckedSchema], form: ReportFormat) -> None:
    match form:
        case ReportFormat.TEXT:
            write_text(results)
        case ReportFormat.JSON:
            write_json(results)
        case ReportFormat.GITHUB:
            write_annotations(results)
    bad = [result for result in results if not result.is_good]
    if form is not ReportFormat.JSON:
        say(f"{counted(len(results), 'schema')} checked, {len(bad)} refused")


@schemas.command("diff")
def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="SCHEMA", help="FILE, git:REVISION:FILE, SUBJECT[@VERSION], id:N, module:Class."
        ),
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="[SCHEMA]", help="The newer schema; default: SUBJECT's latest."),
    ] = None,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the fields that differ between two schemas.

    One subject alone is compared with the version before its latest.
    """

    def work(client: RegistryClient) -> list[Row]:
        first, second = (before, after) if after is not None else _last_two(client, before)
        old, new = load_named(first, client), load_named(second, client)
        if old.parsed.type is not new.parsed.type:
            raise CommandError(
                f"{old.name} is {old.parsed.type}, {new.name} is {new.parsed.type}: schemas of "
                "one type have fields to compare"
            )
        return [
            {
                "CHANGE": one.change,
                "FIELD": one.path,
                "BEFORE": one.before,
                "AFTER": one.after,
            }
            for one in changes(old.parsed, new.parsed)
        ]

    show(with_registry(registry, work), DIFF_COLUMNS, form)


def _last_two(client: RegistryClient, name: str) -> tuple[str, str]:
    subject, version = split_version(name)
    if is_local(name):
        raise WrongCallError(f"{name} is compared with nothing: give a second schema")
    if version is not None:
        return name, f"{subject}@latest"
    numbers = client.versions(subject)
    if len(numbers) < 2:
        raise CommandError(f"subject {subject} has one version only: give a second schema")
    return f"{subject}@{numbers[-2]}", f"{subject}@{numbers[-1]}"


@schemas.command("evolve")
def evolve(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject to change.")],
    to: Annotated[str, typer.Option("--to", metavar="SCHEMA", help="FILE or module:Class.")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Register the schema if it is compatible.")
    ] = False,
    included: Included = None,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Compare a new schema with all versions, and say in which order to deploy; --yes registers."""
    if not is_local(to):
        raise WrongCallError(f"--to {to!r} is no file, and no package.module:Class")
    local = load_local_once(to, included_folders([], included))

    def work(client: RegistryClient) -> bool:
        plan = plan_evolution(client, subject, local)
        show_plan(plan, subject, form)
        if not plan.is_allowed:
            return False
        if yes:
            made = _registered(client, subject, local, normalize=False, is_dry_run=False)
            say(f"registered as version {made['VERSION']}, id {made['ID']}")
        else:
            say(f"{shown_registry(client)}: nothing was registered; --yes does it")
        return True

    if not with_registry(registry, work):
        raise SystemExit(FAILURE)


def load_local_once(word: str, folders: list[Path]) -> LocalSchema:
    """Load a local schema; an invalid one ends the command with its reason."""
    with one_sentence(ValueError):
        return load_local(word, folders)


# -- inference ------------------------------------------------------------------------------------


@schemas.command("infer")
def infer_schema(
    source: Annotated[
        str, typer.Argument(metavar="TOPIC|FILE", help="A topic, a file of JSON, or - for stdin.")
    ],
    kind: Annotated[
        InferredType, typer.Option("--type", "-t", help="The language of the schema.")
    ] = InferredType.AVRO,
    count: Annotated[
        int, typer.Option("--num", "-n", min=1, max=SAMPLE_MAX, help="How many records to look at.")
    ] = SAMPLE_DEFAULT,
    begin: Annotated[
        str, typer.Option("--from", "-o", metavar="PLACE", help="Where to begin in a topic.")
    ] = "start",
    key: Annotated[bool, typer.Option("--key", help="Look at keys instead of values.")] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="The name of the record; default: the source's.")
    ] = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Find an Avro schema or a JSON Schema that fits the JSON in a topic or file."""
    path = Path(source)
    if source == "-" or path.is_file():
        values = values_in(path, count)
        own_name = "record" if source == "-" else path.stem
    else:
        sample = JsonSample(count, "key" if key else "value")
        reading = Reading([source], [], parse_position(begin), END)

        async def work(view: ClusterView) -> None:
            await read(view, reading, sample)

        with_cluster(brokers, settings, work)
        values, own_name = sample.values, source
    schema = infer(values, SchemaType[kind.name], name or own_name)
    sys.stdout.write(f"{schema.text}\n")
