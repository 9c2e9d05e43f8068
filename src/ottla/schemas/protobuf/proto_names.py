"""Names of Protobuf files: the symbols of a file, and how a relative name is resolved."""

from collections.abc import Iterator, Mapping
from typing import Any


def symbols_of(descriptor: Any) -> dict[str, str]:
    """Return the kind of each full name that a file declares."""
    return dict(declared_symbols(descriptor))


def declared_symbols(descriptor: Any) -> Iterator[tuple[str, str]]:
    """Yield each full name with its kind, also a name that is declared twice."""
    package = descriptor.package
    parts = package.split(".") if package else []
    yield from ((".".join(parts[: count + 1]), "package") for count in range(len(parts)))
    prefix = f"{package}." if package else ""
    yield from _symbols_of_scope(descriptor, prefix, descriptor.message_type)
    for service in descriptor.service:
        yield prefix + service.name, "service"
        for method in service.method:
            yield f"{prefix}{service.name}.{method.name}", "method"


def _symbols_of_scope(scope: Any, prefix: str, messages: Any) -> Iterator[tuple[str, str]]:
    for extension in scope.extension:
        yield prefix + extension.name, "extension"
    for enum in scope.enum_type:
        yield prefix + enum.name, "enum"
        for value in enum.value:
            yield prefix + value.name, "enum value"
    for message in messages:
        full_name = prefix + message.name
        yield full_name, "message"
        for field in message.field:
            yield f"{full_name}.{field.name}", "field"
        for oneof in message.oneof_decl:
            yield f"{full_name}.{oneof.name}", "oneof"
        yield from _symbols_of_scope(message, f"{full_name}.", message.nested_type)


def messages_of(descriptor: Any) -> Iterator[tuple[str, Any]]:
    """Yield each message with its full name, the outer before the inner."""
    prefix = f"{descriptor.package}." if descriptor.package else ""
    pending = [(prefix + message.name, message) for message in reversed(descriptor.message_type)]
    while pending:
        full_name, message = pending.pop()
        yield full_name, message
        pending.extend(
            (f"{full_name}.{inner.name}", inner) for inner in reversed(message.nested_type)
        )


def resolve(name: str, scope: str, kinds: Mapping[str, str], wanted: frozenset[str]) -> str | None:
    """Return the full name that a name has inside a scope, by the rules of C++ scoping.

    The innermost scope with the first part of the name decides, unless it has no such type there.
    """
    if name.startswith("."):
        return name[1:] if kinds.get(name[1:]) in wanted else None
    first, _, rest = name.partition(".")
    while True:
        prefix = f"{scope}." if scope else ""
        kind = kinds.get(prefix + first)
        if rest and kind in {"message", "package", "enum", "service"}:
            # A package may go on in a scope further out, so it does not decide.
            if kinds.get(prefix + name) in wanted:
                return prefix + name
            if kind != "package":
                return None
        elif not rest and kind in wanted:
            return prefix + name
        if not scope:
            return None
        scope = scope.rpartition(".")[0]


def json_name(name: str) -> str:
    """Return the JSON name that a field has without the option json_name."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def is_repeated(field: Any) -> bool:
    """Return whether a FieldDescriptor is repeated: Protobuf 7 has no label, 5 no is_repeated."""
    known = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if known is None else known)
