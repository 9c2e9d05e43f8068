"""The identity of a member, for a transactional producer that commits on its behalf."""

from dataclasses import dataclass

from ottla.clients.consumer.group.group_requests import NO_GENERATION


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The result of `group_metadata()`, valid until the next rebalance."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
