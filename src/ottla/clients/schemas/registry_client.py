"""Clients of a schema registry: `RegistryClient` for threads, `AsyncRegistryClient` for asyncio."""

from collections.abc import Mapping
from typing import Any, Self

from ottla.clients.records.serializers import complete
from ottla.clients.schemas.registry_calls import (
    LATEST,
    Compatibility,
    RegisteredSchema,
    RegistryCalls,
)
from ottla.clients.schemas.registry_http import AsyncTransport, SocketTransport, tls_context
from ottla.clients.schemas.schema_settings import RegistrySettings, read_registry_settings
from ottla.clients.threads.not_picklable import NotPicklable
from ottla.environment.clock import Clock
from ottla.runtime.clock import SystemClock
from ottla.schemas.parsed_schema import ParsedSchema
from ottla.schemas.schema import Schema


class RegistryClient(NotPicklable):
    """Calls a schema registry, from any number of threads. Use it in `with`.

    Settings are `url` (several, separated by commas, for fail-over), `basic.auth.user.info`, and
    the others of `CONNECTION_SETTINGS`, in a dict or as keywords with underscores. Calls raise
    RegistryError for a refusal, and RegistryUnreachableError if no server answers. Schemas are
    cached by id, and an unknown id is asked for once, by however many threads.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | RegistrySettings | None = None,
        *,
        clock: Clock | None = None,
        **keywords: Any,
    ) -> None:
        if not isinstance(settings, RegistrySettings):
            settings = read_registry_settings(settings, keywords)
        transport = SocketTransport(tls_context(settings))
        self.calls = RegistryCalls(settings, transport, clock or SystemClock())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        self.calls.close()

    def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Register a schema, or return the id of an equal one; cached."""
        return complete(self.calls.register(subject, schema, normalize))

    def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema; cached."""
        return complete(self.calls.look_up(subject, schema, normalize, deleted))

    def schema_by_id(
        self,
        schema_id: int,
        *,
        subject: str | None = None,
        format: str | None = None,  # noqa: A002
    ) -> RegisteredSchema:
        """Return a schema by its id; cached. `subject` selects a context."""
        return complete(self.calls.by_id(schema_id, subject, format))

    def schema_by_guid(self, guid: str, *, format: str | None = None) -> RegisteredSchema:  # noqa: A002
        """Return a schema by its GUID; cached. Its id may be -1."""
        return complete(self.calls.by_guid(guid, format))

    def latest_version(self, subject: str, *, format: str | None = None) -> RegisteredSchema:  # noqa: A002
        """Return the latest version of a subject, cached for `latest.cache.ttl.ms`."""
        return complete(self.calls.latest_version(subject, format))

    def latest_with_metadata(self, subject: str, properties: Mapping[str, str]) -> RegisteredSchema:
        """Return the latest version with these properties, cached for `latest.cache.ttl.ms`."""
        return complete(self.calls.latest_with_metadata(subject, properties))

    def version(
        self,
        subject: str,
        version: int,
        *,
        deleted: bool = False,
        format: str | None = None,  # noqa: A002
    ) -> RegisteredSchema:
        """Return one version of a subject; cached."""
        return complete(self.calls.version(subject, version, deleted, format))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the numbers of a subject's versions."""
        return complete(self.calls.versions(subject, deleted))

    def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """Return the names of all subjects, or of those with a prefix."""
        return complete(self.calls.subjects(prefix, deleted))

    def parsed(self, schema: Schema) -> ParsedSchema:
        """Parse a schema, with its references from the registry; cached."""
        return complete(self.calls.parsed(schema))

    def check_compatibility(
        self,
        subject: str,
        schema: Schema,
        *,
        version: int | str | None = LATEST,
        normalize: bool = False,
    ) -> Compatibility:
        """Compare a schema with a version; None compares with all that the level names."""
        return complete(self.calls.check_compatibility(subject, schema, version, normalize))

    def config(self, subject: str | None = None, *, default_to_global: bool = True) -> Any:
        """Return the config of a subject, or the global one, as the registry's JSON."""
        return complete(self.calls.config(subject, default_to_global))

    def set_config(self, config: Mapping[str, Any], subject: str | None = None) -> Any:
        """Change the named members, such as `compatibility`; None removes a member."""
        return complete(self.calls.set_config(subject, config))

    def delete_config(self, subject: str | None = None) -> Any:
        """Remove the config of a subject, or the global one."""
        return complete(self.calls.delete_config(subject))

    def mode(self, subject: str | None = None, *, default_to_global: bool = True) -> str:
        """Return the mode of a subject, or the global mode."""
        return complete(self.calls.mode(subject, default_to_global))

    def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> str:
        """Set the mode: READWRITE, READONLY, READONLY_OVERRIDE, IMPORT or FORWARD."""
        return complete(self.calls.set_mode(subject, mode, force))

    def delete_mode(self, subject: str) -> str:
        """Remove the mode of a subject."""
        return complete(self.calls.delete_mode(subject))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions, and return their numbers."""
        return complete(self.calls.delete_subject(subject, permanent))

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        """Delete one version, and return its number."""
        return complete(self.calls.delete_version(subject, version, permanent))


class AsyncRegistryClient(NotPicklable):
    """The calls of `RegistryClient`, for asyncio. Use it in `async with`, in one event loop."""

    def __init__(
        self,
        settings: Mapping[str, Any] | RegistrySettings | None = None,
        *,
        clock: Clock | None = None,
        **keywords: Any,
    ) -> None:
        if not isinstance(settings, RegistrySettings):
            settings = read_registry_settings(settings, keywords)
        self._transport = AsyncTransport(tls_context(settings))
        self.calls = RegistryCalls(settings, self._transport, clock or SystemClock())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the idle connections."""
        await self._transport.aclose()

    async def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Register a schema, or return the id of an equal one; cached."""
        return await self.calls.register(subject, schema, normalize)

    async def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema; cached."""
        return await self.calls.look_up(subject, schema, normalize, deleted)

    async def schema_by_id(
        self,
        schema_id: int,
        *,
        subject: str | None = None,
        format: str | None = None,  # noqa: A002
    ) -> RegisteredSchema:
        """Return a schema by its id; cached. `subject` selects a context."""
        return await self.calls.by_id(schema_id, subject, format)

    async def schema_by_guid(self, guid: str, *, format: str | None = None) -> RegisteredSchema:  # noqa: A002
        """Return a schema by its GUID; cached. Its id may be -1."""
        return await self.calls.by_guid(guid, format)

    async def latest_version(self, subject: str, *, format: str | None = None) -> RegisteredSchema:  # noqa: A002
        """Return the latest version of a subject, cached for `latest.cache.ttl.ms`."""
        return await self.calls.latest_version(subject, format)

    async def latest_with_metadata(
        self, subject: str, properties: Mapping[str, str]
    ) -> RegisteredSchema:
        """Return the latest version with these properties, cached for `latest.cache.ttl.ms`."""
        return await self.calls.latest_with_metadata(subject, properties)

    async def version(
        self,
        subject: str,
        version: int,
        *,
        deleted: bool = False,
        format: str | None = None,  # noqa: A002
    ) -> RegisteredSchema:
        """Return one version of a subject; cached."""
        return await self.calls.version(subject, version, deleted, format)

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the numbers of a subject's versions."""
        return await self.calls.versions(subject, deleted)

    async def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """Return the names of all subjects, or of those with a prefix."""
        return await self.calls.subjects(prefix, deleted)

    async def parsed(self, schema: Schema) -> ParsedSchema:
        """Parse a schema, with its references from the registry; cached."""
        return await self.calls.parsed(schema)

    async def check_compatibility(
        self,
        subject: str,
        schema: Schema,
        *,
        version: int | str | None = LATEST,
        normalize: bool = False,
    ) -> Compatibility:
        """Compare a schema with a version; None compares with all that the level names."""
        return await self.calls.check_compatibility(subject, schema, version, normalize)

    async def config(self, subject: str | None = None, *, default_to_global: bool = True) -> Any:
        """Return the config of a subject, or the global one, as the registry's JSON."""
        return await self.calls.config(subject, default_to_global)

    async def set_config(self, config: Mapping[str, Any], subject: str | None = None) -> Any:
        """Change the named members, such as `compatibility`; None removes a member."""
        return await self.calls.set_config(subject, config)

    async def delete_config(self, subject: str | None = None) -> Any:
        """Remove the config of a subject, or the global one."""
        return await self.calls.delete_config(subject)

    async def mode(self, subject: str | None = None, *, default_to_global: bool = True) -> str:
        """Return the mode of a subject, or the global mode."""
        return await self.calls.mode(subject, default_to_global)

    async def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> str:
        """Set the mode: READWRITE, READONLY, READONLY_OVERRIDE, IMPORT or FORWARD."""
        return await self.calls.set_mode(subject, mode, force)

    async def delete_mode(self, subject: str) -> str:
        """Remove the mode of a subject."""
        return await self.calls.delete_mode(subject)

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions, and return their numbers."""
        return await self.calls.delete_subject(subject, permanent)

    async def delete_version(
        self, subject: str, version: int | str, *, permanent: bool = False
    ) -> int:
        """Delete one version, and return its number."""
        return await self.calls.delete_version(subject, version, permanent)
