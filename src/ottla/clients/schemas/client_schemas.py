"""The serializers and deserializers of a client with `key=` or `value=`, and its registry."""

from dataclasses import replace
from typing import Any, TypeVar

from ottla.clients.schemas.registry_client import AsyncRegistryClient, RegistryClient
from ottla.clients.schemas.schema_settings import ClientSchemas
from ottla.clients.schemas.serializers import SchemaDeserializer, SchemaSerializer

S = TypeVar("S")
AnyRegistryClient = RegistryClient | AsyncRegistryClient


def registry_client(schemas: ClientSchemas, *, is_async: bool) -> AnyRegistryClient:
    """Make the registry client of a producer or consumer, which closes it."""
    kind = AsyncRegistryClient if is_async else RegistryClient
    return kind(schemas.registry)


def with_serializers(settings: S, schemas: ClientSchemas, registry: AnyRegistryClient) -> S:
    """Return a producer's settings with serializers for the parts that have a schema."""
    made: dict[str, Any] = {}
    for part, form in (("key", schemas.key), ("value", schemas.value)):
        if form is not None:
            made[f"{part}_serializer"] = SchemaSerializer(
                form, registry, schemas.settings, part=part
            )
    return replace(settings, **made)  # type: ignore[type-var]


def with_deserializers(settings: S, schemas: ClientSchemas, registry: AnyRegistryClient) -> S:
    """Return a consumer's settings with deserializers for the parts that have a schema."""
    made: dict[str, Any] = {}
    for part, form in (("key", schemas.key), ("value", schemas.value)):
        if form is not None:
            made[f"{part}_deserializer"] = SchemaDeserializer(form, registry, part=part)
    return replace(settings, **made)  # type: ignore[type-var]
