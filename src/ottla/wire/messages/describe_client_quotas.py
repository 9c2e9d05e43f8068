"""DescribeClientQuotas (API 48): find client quotas.

The match type is 0 for an exact name, 1 for the default, 2 for any name (KIP-546). With strict
set, entities that have further components are left out.
"""

from ottla.wire.schema import Message, Struct, array, boolean, float64, int8, int16, int32, string


class ComponentData(Struct):
    """A filter for one component of an entity."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable_since=0)


class DescribeClientQuotasRequest(Message, versions=(0, 1), flexible_since=1):
    """Find the quotas of the entities that match."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """One component of the entity that the quotas apply to."""

    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)


class ValueData(Struct):
    """One limit."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """An entity and its limits."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, versions=(0, 1), flexible_since=1):
    """The quotas that were found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entries: list[EntryData] | None = array(EntryData, nullable_since=0)
