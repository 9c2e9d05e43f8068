"""AlterClientQuotas (API 49): set or remove client quotas.

A null entity name stands for the default of its type (KIP-546).
"""

from ottla.wire.schema import Message, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    """One component of the entity to limit."""

    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)


class OpData(Struct):
    """A limit to set or to lift."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterClientQuotasRequestEntry(Struct):
    """An entity and the changes of its quotas."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, versions=(0, 1), flexible_since=1):
    """Change these quotas, or only check that it could be done."""

    entries: list[AlterClientQuotasRequestEntry] = array(AlterClientQuotasRequestEntry)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntry(Struct):
    """Whether one entity's limits were changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, versions=(0, 1), flexible_since=1):
    """One result per entity."""

    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntry] = array(AlterClientQuotasResponseEntry)
