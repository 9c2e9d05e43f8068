"""The operations of the registry's REST interface, as one table of routes.

Every operation is a function of the machine and a `Call`. Reads return the response; writes return
a `Decision`. The paths below may follow `/contexts/{context}/`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import Struct

from ottla.registry import queries
from ottla.registry.configuration import (
    ConfigUpdate,
    ModeUpdate,
    delete_config,
    delete_mode,
    get_config,
    get_mode,
    put_config,
    put_mode,
)
from ottla.registry.deletion import delete_context, delete_subject, delete_version
from ottla.registry.qualified_subjects import (
    DEFAULT_CONTEXT,
    EVERY_CONTEXT,
    GLOBAL,
    context_named,
    context_of,
    is_qualified,
    normalized,
    qualified,
)
from ottla.registry.queries import (
    SCHEMAS_PAGE_MAX,
    Shape,
    find_id,
    find_version,
    page,
    version_answer,
    version_number,
)
from ottla.registry.registration import (
    SchemaRequest,
    canonical,
    incompatibilities,
    look_up,
    register,
    requested_schema,
)
from ottla.registry.registry_errors import (
    RegistryError,
    schema_not_found,
    subject_not_found,
    unprocessable,
    version_not_found,
)
from ottla.registry.registry_machine import Decision, Operation, RegistryMachine, check_subject

INTEGER_DIGITS_MAX: Final = 10


class ServerVersion(Struct, rename="camel"):
    """The answer to GET /v1/metadata/version."""

    version: str
    commit_id: str


class CompatibilityAnswer(Struct, omit_defaults=True):
    """The answer of a compatibility check."""

    is_compatible: bool
    messages: list[str] | None = None


class BareText(str):
    """A response that is a text of its own, not a member in JSON."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an operation."""

    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: Any = None
    context: str = DEFAULT_CONTEXT
    """From the prefix of the path."""
    with_unknown: bool = False
    """Whether the client ignores members that it does not know."""
    cluster_id: str = ""
    version: str = ""

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return self.text(name).lower() == "true"

    def text(self, name: str) -> str:
        """Return a parameter; empty without one."""
        values = self.query.get(name)
        return values[0] if values else ""

    def integer(self, name: str, default: int) -> int:
        """Return a parameter that is a number."""
        text = self.text(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= INTEGER_DIGITS_MAX):
            raise unprocessable(f"The parameter {name} must be a number.")
        return int(text)

    @property
    def deleted_only(self) -> bool:
        """Whether only deleted ones are asked for; Confluent's Python client says deleted_only."""
        return self.flag("deletedOnly") or self.flag("deleted_only")

    @property
    def shape(self) -> Shape:
        """How schemas are to be shown."""
        tags = tuple(self.query.get("findTags", ()))
        return Shape(self.with_unknown, self.text("format"), self.text("referenceFormat"), tags)

    @property
    def named_subject(self) -> str:
        """The subject, or the scope, of the path, before aliases."""
        subject = self.path.get("subject", "")
        return self._in_context(subject)

    def _in_context(self, subject: str) -> str:
        if is_qualified(subject):
            return normalized(subject)
        return qualified(self.context, subject)

    @property
    def id_subject(self) -> str:
        """The subject that selects the context of an id."""
        subject = self.text("subject")
        if self.context != DEFAULT_CONTEXT:
            return self._in_context(subject)
        return subject

    def prefix(self, default: str) -> str:
        """Return the prefix of a list of subjects."""
        if "subjectPrefix" not in self.query:
            default_here = qualified(self.context, "")
            return default if self.context == DEFAULT_CONTEXT else default_here
        prefix = self.text("subjectPrefix")
        return prefix if prefix.startswith(":*:") else self._in_context(prefix)

    def path_id(self) -> int:
        """Return the id of the path."""
        text = self.path["id"]
        if not (text.isascii() and text.isdigit() and len(text) <= INTEGER_DIGITS_MAX):
            raise schema_not_found(text[:40])
        return int(text)

    def request(self) -> SchemaRequest:
        """Return the body of an operation on a schema."""
        assert isinstance(self.body, SchemaRequest)
        return self.body


def _subject(machine: RegistryMachine, call: Call) -> str:
    return machine.target(call.named_subject)


Run = Callable[[RegistryMachine, Call], Any]


@dataclass(frozen=True, slots=True)
class Route:
    """An operation of the REST interface."""

    method: str
    path: str
    operation: Operation
    run: Run
    query: tuple[str, ...] = ()
    body: type[Struct] | None = None

    @property
    def is_write(self) -> bool:
        """Whether the operation needs the leader."""
        return self.operation in {Operation.WRITE, Operation.DELETE, Operation.WRITE_CONFIG}


# Schemas


def _root(_: RegistryMachine, __: Call) -> Any:
    return {}


def _types(_: RegistryMachine, __: Call) -> Any:
    return ["JSON", "PROTOBUF", "AVRO"]


def _schemas(machine: RegistryMachine, call: Call) -> Any:
    prefix = call.prefix(EVERY_CONTEXT)
    subjects = [one for one in machine.state.subjects() if queries.has_prefix(one, prefix)]
    if call.flag("aliases"):
        aliases = [one for one in machine.state.configs if queries.has_prefix(one, prefix)]
        subjects = sorted({*subjects, *map(machine.target, aliases)})
    found = queries.matching_schemas(
        machine,
        subjects,
        with_deleted=call.flag("deleted"),
        latest_only=call.flag("latestOnly"),
    )
    rule_type = call.text("ruleType")
    if rule_type:
        found = [one for one in found if queries.has_rule_of_type(one, rule_type)]
    shown = page(found, call.integer("offset", 0), call.integer("limit", -1), SCHEMAS_PAGE_MAX)
    shape = Shape(call.with_unknown)
    return [version_answer(machine, version, shape) for version in shown]


def _schema_by_id(machine: RegistryMachine, call: Call) -> Any:
    stored = find_id(machine, call.path_id(), call.id_subject)
    answer = queries.stored_answer(machine, stored, call.shape)
    if call.flag("fetchMaxId"):
        answer.max_id = machine.state.max_ids.get(stored.context, 0)
    return answer


def _text_by_id(machine: RegistryMachine, call: Call) -> Any:
    stored = find_id(machine, call.path_id(), call.id_subject)
    text_format = call.text("format")
    return BareText(queries.formatted(machine, stored.context, stored.schema, text_format))


def _subjects_by_id(machine: RegistryMachine, call: Call) -> Any:
    return _page_of(call, list(dict.fromkeys(one.subject for one in _by_id(machine, call))))


def _versions_by_id(machine: RegistryMachine, call: Call) -> Any:
    versions = [queries.SubjectVersion(*one.place) for one in _by_id(machine, call)]
    return _page_of(call, versions)


def _by_id(machine: RegistryMachine, call: Call) -> Any:
    stored = find_id(machine, call.path_id(), call.id_subject)
    deleted = call.flag("deleted")
    return queries.versions_of_id(machine, stored, call.text("subject"), with_deleted=deleted)


def _schema_by_guid(machine: RegistryMachine, call: Call) -> Any:
    return queries.stored_answer(
        machine, queries.find_guid(machine, call.path["guid"])[0], call.shape
    )


def _ids_by_guid(machine: RegistryMachine, call: Call) -> Any:
    return queries.context_ids(queries.find_guid(machine, call.path["guid"]))


def _page_of(call: Call, entries: Sequence[Any]) -> Any:
    return page(entries, call.integer("offset", 0), call.integer("limit", -1))


# Subjects


def _subjects(machine: RegistryMachine, call: Call) -> Any:
    deleted_only, deleted = call.deleted_only, call.flag("deleted")
    subjects = queries.matching_subjects(
        machine,
        call.prefix(EVERY_CONTEXT),
        lambda version: version.is_deleted if deleted_only else deleted or not version.is_deleted,
    )
    if deleted_only:
        subjects = [subject for subject in subjects if machine.state.latest(subject) is None]
    return _page_of(call, subjects)


def _look_up(machine: RegistryMachine, call: Call) -> Any:
    version = look_up(
        machine,
        _subject(machine, call),
        call.request(),
        normalize=call.flag("normalize"),
        with_deleted=call.flag("deleted"),
    )
    return version_answer(machine, version, call.shape)


def _register(machine: RegistryMachine, call: Call) -> Decision:
    subject = _subject(machine, call)
    decision = register(
        machine,
        subject,
        call.request(),
        normalize=call.flag("normalize"),
        force=call.flag("force"),
    )
    response = queries.registered_answer(machine, subject, decision.response, call.shape)
    return replace(decision, response=response)


def _delete_subject(machine: RegistryMachine, call: Call) -> Decision:
    return delete_subject(machine, _subject(machine, call), permanent=call.flag("permanent"))


def _versions(machine: RegistryMachine, call: Call) -> Any:
    subject = _subject(machine, call)
    numbers = queries.listed_numbers(
        machine.state.versions(subject).values(),
        with_deleted=call.flag("deleted"),
        deleted_only=call.deleted_only,
        deleted_as_negative=call.flag("deletedAsNegative"),
    )
    if not numbers:
        raise subject_not_found(subject)
    return _page_of(call, numbers)


def _version_of(machine: RegistryMachine, call: Call, *, with_deleted: bool) -> Any:
    number = version_number(call.path["version"])
    return find_version(machine, _subject(machine, call), number, with_deleted=with_deleted)


def _version(machine: RegistryMachine, call: Call) -> Any:
    version = _version_of(machine, call, with_deleted=call.flag("deleted"))
    return version_answer(machine, version, call.shape)


def _version_text(machine: RegistryMachine, call: Call) -> Any:
    stored = _version_of(machine, call, with_deleted=call.flag("deleted")).stored
    text_format = call.text("format")
    return BareText(queries.formatted(machine, stored.context, stored.schema, text_format))


def _referenced_by(machine: RegistryMachine, call: Call) -> Any:
    version = _version_of(machine, call, with_deleted=True)
    deleted = call.flag("deleted")
    referrers = machine.state.referrers(*version.place)
    ids = {one.stored.id for one in referrers if deleted or not one.is_deleted}
    return _page_of(call, sorted(ids))


def _delete_version(machine: RegistryMachine, call: Call) -> Decision:
    permanent = call.flag("permanent")
    is_latest = version_number(call.path["version"]) == -1
    version = _version_of(machine, call, with_deleted=permanent or not is_latest)
    return delete_version(machine, version, permanent=permanent)


def _with_metadata(machine: RegistryMachine, call: Call) -> Any:
    keys, values = call.query.get("key", ()), call.query.get("value", ())
    if len(keys) != len(values):
        raise unprocessable("There must be as many parameters `key` as `value`.")
    version = queries.version_with_metadata(
        machine,
        _subject(machine, call),
        dict(zip(keys, values, strict=True)),
        with_deleted=call.flag("deleted"),
    )
    return version_answer(machine, version, call.shape)


# Compatibility


def _check_all(machine: RegistryMachine, call: Call) -> Any:
    return _check(machine, call, machine.state.live_versions(_subject(machine, call)))


def _check_one(machine: RegistryMachine, call: Call) -> Any:
    number = version_number(call.path["version"])
    subject = _subject(machine, call)
    latest = machine.state.latest(subject)
    version = latest if number == -1 else machine.state.versions(subject).get(number)
    if version is None or version.is_deleted:
        if number == -1:
            return _check(machine, call, [])
        raise subject_not_found(subject) if latest is None else version_not_found(number)
    return _check(machine, call, [version])


def _check(machine: RegistryMachine, call: Call, versions: list[Any]) -> Any:
    subject = _subject(machine, call)
    check_subject(subject)
    config = machine.config(subject)
    schema = requested_schema(machine, subject, call.request())
    if not schema.text.strip():
        raise RegistryError(42201, "Invalid schema: the text is empty")
    schema = canonical(machine, subject, schema, config, normalize=call.flag("normalize"))
    messages = incompatibilities(machine, subject, schema, versions, config)
    return CompatibilityAnswer(not messages, messages if call.flag("verbose") else None)


# Configurations, modes, contexts


def _scope(call: Call) -> str:
    scope = call.named_subject
    if scope != GLOBAL and scope != qualified(context_of(scope), ""):
        check_subject(scope)
    return scope


def _get_config(machine: RegistryMachine, call: Call) -> Any:
    return get_config(machine, _scope(call), inherited=call.flag("defaultToGlobal"))


def _put_config(machine: RegistryMachine, call: Call) -> Decision:
    return put_config(machine, _scope(call), call.body)


def _delete_config(machine: RegistryMachine, call: Call) -> Decision:
    return delete_config(machine, _scope(call))


def _get_mode(machine: RegistryMachine, call: Call) -> Any:
    return get_mode(machine, _scope(call), inherited=call.flag("defaultToGlobal"))


def _put_mode(machine: RegistryMachine, call: Call) -> Decision:
    return put_mode(machine, _scope(call), call.body.mode, force=call.flag("force"))


def _delete_mode(machine: RegistryMachine, call: Call) -> Decision:
    return delete_mode(machine, _scope(call), recursive=call.flag("recursive"))


def _contexts(machine: RegistryMachine, call: Call) -> Any:
    prefix = call.text("contextPrefix")
    contexts = [one for one in machine.state.contexts() if one.startswith(prefix)]
    return _page_of(call, contexts)


def _delete_context(machine: RegistryMachine, call: Call) -> Decision:
    return delete_context(machine, context_named(call.path["context"]))


def _metadata_id(_: RegistryMachine, call: Call) -> Any:
    return queries.cluster_scope(call.cluster_id)


def _metadata_version(_: RegistryMachine, call: Call) -> Any:
    return ServerVersion(call.version, "")


_PAGE: Final = ("offset", "limit")
_SUBJECT: Final = "/subjects/{subject}"
_VERSION: Final = "/subjects/{subject}/versions/{version}"
_CHECK: Final = "/compatibility/subjects/{subject}/versions"
_ID: Final = "/schemas/ids/{id}"
_READ, _WRITE, _DELETE = Operation.READ, Operation.WRITE, Operation.DELETE
_READ_CONFIG, _WRITE_CONFIG = Operation.READ_CONFIG, Operation.WRITE_CONFIG
_LIST = ("subjectPrefix", "deleted")
_SHOWN: Final = ("format", "referenceFormat")

ROUTES: Final = (
    Route("GET", "/", Operation.DESCRIBE, _root),
    Route("GET", "/schemas/types", Operation.DESCRIBE, _types),
    Route(
        "GET",
        "/schemas",
        _READ,
        _schemas,
        (*_LIST, "latestOnly", "aliases", "ruleType", *_PAGE),
    ),
    Route("GET", _ID, _READ, _schema_by_id, ("subject", *_SHOWN, "fetchMaxId", "findTags")),
    Route("GET", _ID + "/schema", _READ, _text_by_id, ("subject", "format")),
    Route("GET", _ID + "/subjects", _READ, _subjects_by_id, ("subject", "deleted", *_PAGE)),
    Route("GET", _ID + "/versions", _READ, _versions_by_id, ("subject", "deleted", *_PAGE)),
    Route("GET", "/schemas/guids/{guid}", _READ, _schema_by_guid, ("format",)),
    Route("GET", "/schemas/guids/{guid}/ids", _READ, _ids_by_guid),
    Route("GET", "/subjects", _READ, _subjects, (*_LIST, "deletedOnly", *_PAGE)),
    Route("POST", _SUBJECT, _READ, _look_up, ("normalize", "deleted", "format"), SchemaRequest),
    Route("DELETE", _SUBJECT, _DELETE, _delete_subject, ("permanent",)),
    Route(
        "GET",
        _SUBJECT + "/versions",
        _READ,
        _versions,
        ("deleted", "deletedOnly", "deletedAsNegative", *_PAGE),
    ),
    Route(
        "POST",
        _SUBJECT + "/versions",
        _WRITE,
        _register,
        ("normalize", "format", "force"),
        SchemaRequest,
    ),
    Route("GET", _VERSION, _READ, _version, (*_SHOWN, "deleted", "findTags")),
    Route("DELETE", _VERSION, _DELETE, _delete_version, ("permanent",)),
    Route("GET", _VERSION + "/schema", _READ, _version_text, ("format", "deleted")),
    Route("GET", _VERSION + "/referencedby", _READ, _referenced_by, ("deleted", *_PAGE)),
    Route(
        "GET", _SUBJECT + "/metadata", _READ, _with_metadata, ("key", "value", "deleted", "format")
    ),
    Route("POST", _CHECK, _READ, _check_all, ("normalize", "verbose"), SchemaRequest),
    Route(
        "POST",
        _CHECK + "/{version}",
        _READ,
        _check_one,
        ("normalize", "verbose"),
        SchemaRequest,
    ),
    Route("GET", "/config", _READ_CONFIG, _get_config, ("defaultToGlobal",)),
    Route("PUT", "/config", _WRITE_CONFIG, _put_config, (), ConfigUpdate),
    Route("DELETE", "/config", _WRITE_CONFIG, _delete_config),
    Route("GET", "/config/{subject}", _READ_CONFIG, _get_config, ("defaultToGlobal",)),
    Route("PUT", "/config/{subject}", _WRITE_CONFIG, _put_config, (), ConfigUpdate),
    Route("DELETE", "/config/{subject}", _WRITE_CONFIG, _delete_config),
    Route("GET", "/mode", _READ_CONFIG, _get_mode, ("defaultToGlobal",)),
    Route("PUT", "/mode", _WRITE_CONFIG, _put_mode, ("force",), ModeUpdate),
    Route("DELETE", "/mode", _WRITE_CONFIG, _delete_mode, ("recursive",)),
    Route("GET", "/mode/{subject}", _READ_CONFIG, _get_mode, ("defaultToGlobal",)),
    Route("PUT", "/mode/{subject}", _WRITE_CONFIG, _put_mode, ("force",), ModeUpdate),
    Route("DELETE", "/mode/{subject}", _WRITE_CONFIG, _delete_mode, ("recursive",)),
    Route("GET", "/contexts", _READ, _contexts, ("contextPrefix", *_PAGE)),
    Route("DELETE", "/contexts/{context}", _DELETE, _delete_context),
    Route("GET", "/v1/metadata/id", Operation.DESCRIBE, _metadata_id),
    Route("GET", "/v1/metadata/version", Operation.DESCRIBE, _metadata_version),
)
