"""The errors of the registry's REST interface: HTTP status, Confluent's code and message."""

from typing import Final


class RegistryError(Exception):
    """A request that the registry refuses, or cannot answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status: the first three digits of the code."""
        return self.code if self.code < 1000 else self.code // 100


LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")


def subject_not_found(subject: str) -> RegistryError:
    """Return 40401: there is no such subject."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def context_not_found(context: str) -> RegistryError:
    """Return 40401: there is no such context."""
    return RegistryError(40401, f"Context '{context}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    """Return 40402: the subject has no such version."""
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | str | None = None) -> RegistryError:
    """Return 40403: there is no such schema."""
    which = "" if schema_id is None else f" {schema_id}"
    return RegistryError(40403, f"Schema{which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    """Return 40404: the subject is already soft-deleted."""
    message = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return RegistryError(40404, message)


def subject_not_soft_deleted(subject: str) -> RegistryError:
    """Return 40405: a hard delete came before the soft delete."""
    message = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return RegistryError(40405, message)


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    """Return 40406: the version is already soft-deleted."""
    message = (
        f"Subject '{subject}' Version {version} was soft deleted."
        " Set permanent=true to delete permanently"
    )
    return RegistryError(40406, message)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """Return 40407: a hard delete came before the soft delete."""
    message = (
        f"Subject '{subject}' Version {version} was not deleted first"
        " before being permanently deleted"
    )
    return RegistryError(40407, message)


def no_level_of_its_own(subject: str) -> RegistryError:
    """Return 40408: the subject inherits its configuration."""
    message = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryError(40408, message)


def no_mode_of_its_own(subject: str) -> RegistryError:
    """Return 40409: the subject inherits its mode."""
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: list[str]) -> RegistryError:
    """Return 40901: the schema is not compatible with a live version."""
    message = (
        "Schema being registered is incompatible with an earlier schema"
        f' for subject "{subject}", details: [{", ".join(messages)}]'
    )
    return RegistryError(40901, message)


def invalid_schema(reason: str) -> RegistryError:
    """Return 42201: the text or the type of a schema is not valid."""
    return RegistryError(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    """Return 42202: the path names no version."""
    message = (
        f"The specified version '{version[:40]}' is not a valid version id. Allowed values are"
        ' between [1, 2^31-1] and the string "latest"'
    )
    return RegistryError(42202, message)


def invalid_level() -> RegistryError:
    """Return 42203: the level is not one of `LEVELS`."""
    valid = ", ".join(LEVELS)
    return RegistryError(42203, f"Invalid compatibility level. Valid values are {valid}")


def invalid_mode() -> RegistryError:
    """Return 42204: the mode is not one of `MODES`."""
    return RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")


def not_permitted(reason: str) -> RegistryError:
    """Return 42205: the mode forbids the operation."""
    return RegistryError(42205, reason)


def reference_exists(subject: str, version: int) -> RegistryError:
    """Return 42206: a live schema refers to this version."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def id_differs(schema_id: int) -> RegistryError:
    """Return 42207: the id belongs to another text, or the text has another id."""
    return RegistryError(42207, f"Overwrite new schema with id {schema_id} is not permitted.")


def invalid_subject(subject: str) -> RegistryError:
    """Return 42208: the name of the subject is reserved, too long, or has control characters."""
    return RegistryError(42208, f"The specified subject '{subject[:100]}' is not a valid subject.")


def too_large(what_is_large: str, limit: int) -> RegistryError:
    """Return 42209: a limit of the registry is exceeded."""
    return RegistryError(42209, f"{what_is_large} is larger than the limit of {limit}.")


def invalid_rule_set(reason: str) -> RegistryError:
    """Return 42210: names or modes of rules are not valid."""
    return RegistryError(42210, f"Invalid rule set: {reason}")


def context_not_empty(context: str) -> RegistryError:
    """Return 42211: a context with subjects cannot be deleted."""
    return RegistryError(42211, f"The specified context '{context}' is not empty.")


def unprocessable(reason: str) -> RegistryError:
    """Return 422: the body or a parameter of the request is not valid."""
    return RegistryError(422, reason)


def store_failed(reason: str) -> RegistryError:
    """Return 50001: the log could not be written or read."""
    return RegistryError(50001, f"Error in the backend data store: {reason}")


def timed_out(reason: str) -> RegistryError:
    """Return 50002: the operation took too long; its outcome may be unknown."""
    return RegistryError(50002, f"Operation timed out: {reason}")


def forwarding_failed(reason: str) -> RegistryError:
    """Return 50003: the leader's registry could not be reached."""
    return RegistryError(50003, f"Error while forwarding the request to the leader: {reason}")


def leader_without_registry(leader: str) -> RegistryError:
    """Return 50004: the broker that leads `_schemas` cannot take a write."""
    message = (
        f"Leader of _schemas not known: {leader} and has no schema registry that other brokers"
        " reach. Set ottla.schema.registry.listener there, and install 'ottla[schemas]'."
    )
    return RegistryError(50004, message)


def unknown_leader() -> RegistryError:
    """Return 50004: no broker leads `_schemas`, or this broker does not know which."""
    return RegistryError(50004, "Leader of _schemas not known. Retry the request.")
