"""The fingerprint of a schema: Confluent's guid, an MD5 of text, references, metadata and rules.

Equal schemas have equal fingerprints in every registry. The type of the schema is not part of it.
"""

from collections.abc import Iterable, Mapping
from hashlib import md5
from typing import Protocol
from uuid import UUID

from ottla.schemas.schema import Metadata, Rule, RuleSet, Schema


class _Hash(Protocol):
    def update(self, part: bytes, /) -> None: ...


def fingerprint(schema: Schema) -> bytes:
    """Return the sixteen bytes of the guid. `schema.text` must be the stored text."""
    hashed = md5(schema.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in schema.references:
        _add(hashed, reference.name, reference.subject)
        hashed.update((reference.version & 0xFFFFFFFF).to_bytes(4, "big"))
    if schema.metadata is not None:
        hashed.update(b"\x01")
        _add_metadata(hashed, schema.metadata)
    if schema.rule_set is not None:
        hashed.update(b"\x01")
        _add_rule_set(hashed, schema.rule_set)
    return hashed.digest()


def guid_text(guid: bytes) -> str:
    """Return a fingerprint as the registry shows it."""
    return str(UUID(bytes=guid))


def _add(hashed: _Hash, *texts: str | None) -> None:
    for text in texts:
        if text is not None:
            hashed.update(text.encode("utf-8", "surrogatepass"))


def _add_metadata(hashed: _Hash, metadata: Metadata) -> None:
    for path, tags in sorted((metadata.tags or {}).items()):
        _add(hashed, path, *sorted(tags))
    _add_pairs(hashed, metadata.properties)
    _add(hashed, *sorted(metadata.sensitive or ()))


def _add_pairs(hashed: _Hash, pairs: Mapping[str, str] | None) -> None:
    for key, value in sorted((pairs or {}).items()):
        _add(hashed, key, value)


def _add_rule_set(hashed: _Hash, rule_set: RuleSet) -> None:
    _add_rules(hashed, rule_set.migration_rules or ())
    _add_rules(hashed, rule_set.domain_rules or ())
    _add_rules(hashed, rule_set.encoding_rules or ())
    _add(hashed, rule_set.enable_at)


def _add_rules(hashed: _Hash, rules: Iterable[Rule]) -> None:
    for rule in rules:
        _add(hashed, rule.name, rule.doc, rule.kind, rule.mode, rule.type)
        _add(hashed, *sorted(rule.tags or ()))
        _add_pairs(hashed, rule.params)
        _add(hashed, rule.expr, rule.on_success, rule.on_failure)
        if rule.disabled:
            hashed.update(b"\x01")
