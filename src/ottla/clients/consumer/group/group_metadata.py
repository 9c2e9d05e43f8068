"""Who a member is, for a transactional producer that commits in its name."""

from dataclasses import dataclass

from ottla.clients.consumer.group.group_requests import NO_GENERATION


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """What `group_metadata()` returns. It holds until the next rebalance."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
