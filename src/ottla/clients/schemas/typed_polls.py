"""Polled records as a table with the columns of their values, for `poll_arrow(decode="value")`."""

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

from ottla.clients.schemas.registry_client import AsyncRegistryClient, RegistryClient
from ottla.clients.schemas.schema_settings import ClientSchemas
from ottla.clients.schemas.typed_values import TypedValues
from ottla.clients.schemas.value_forms import form_of
from ottla.schemas.schema import Schema
from ottla.wire.records.arrow import schema as record_schema

PARTS: Final = ("key", "value")
ERROR: Final = "_error"
"""The column with the reason for each value that cannot be decoded; null for the others."""


class TypedPolls:
    """One consumer's decoders, by part. The columns are fixed with the first poll.

    They are the fields of `key=` or `value=`, else of the latest version for the only topic.
    """

    def __init__(
        self, registry: RegistryClient | AsyncRegistryClient, schemas: ClientSchemas
    ) -> None:
        self._registry = registry
        self._form_by_part = {"key": schemas.key, "value": schemas.value}
        self._strategy = schemas.settings.subject_name_strategy
        self._typed: dict[str, TypedValues] = {}
        self._held: list[Any] = []

    def columns(self, part: str, wanted: Collection[str] | None) -> list[str]:
        """Return the columns of records to read; ValueError if there is no such column."""
        if part not in PARTS:
            raise ValueError(f"decode={part!r}: it must be key or value")
        known = record_schema(include_headers=True).names
        unknown = sorted(set(wanted or ()) - set(known))
        if unknown:
            raise ValueError(f"records have no column {unknown[0]!r}: {', '.join(known)}")
        chosen = set(record_schema().names if wanted is None else wanted)
        return [name for name in known if name in chosen | {part, "headers"}]

    async def prepare(self, part: str, topics: Collection[str]) -> None:
        """Fix the columns, before records are taken; ValueError if no schema is known."""
        if part in self._typed:
            return
        calls = self._registry.calls
        schema = await self._schema(part, topics)
        self._typed[part] = TypedValues(self._registry, await calls.parsed(schema), part=part)

    async def _schema(self, part: str, topics: Collection[str]) -> Schema:
        form = self._form_by_part[part]
        own = None if form is None else form_of(form).schema
        if own is not None:
            return own
        if len(topics) != 1:
            raise ValueError(
                f"the columns are not certain for {len(topics)} topics: make the consumer with "
                f"{part}=, a class or a Schema"
            )
        (topic,) = topics
        subject = self._strategy(topic, part, None)
        return (await self._registry.calls.latest_version(subject, None)).schema

    def held(self, read: Collection[str]) -> list[Any]:
        """Return the batches that were not decoded because the registry was unreachable."""
        return [batch for batch in self._held if batch.schema.names == list(read)]

    async def table(
        self, part: str, batches: list[Any], wanted: Collection[str] | None
    ) -> pa.Table:
        """Return the decoded columns, `_error`, and the record's other columns as `_name`."""
        typed = self._typed[part]
        others = [
            name
            for name in self.columns(part, wanted)
            if name != part and (name != "headers" or (wanted is not None and name in wanted))
        ]
        kinds = record_schema(include_headers=True)
        fields = [*typed.schema, pa.field(ERROR, pa.string())]
        fields += [kinds.field(name).with_name(f"_{name}") for name in others]
        schema = pa.schema(fields)
        made = []
        self._held = batches
        for batch in batches:
            decoded = await typed.decode_in_loop(batch.column(part), batch.column("headers"))
            errors = _errors(decoded.errors, batch.num_rows)
            rest = [batch.column(name) for name in others]
            arrays = [*decoded.batch.columns, errors, *rest]
            made.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        self._held = []
        return pa.Table.from_batches(made, schema)


def _errors(errors: Any, count: int) -> pa.Array:
    if not errors:
        return pa.nulls(count, pa.string())
    return pa.array([errors.get(row) for row in range(count)], pa.string())
