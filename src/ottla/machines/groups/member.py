"""One member of a group, and how much memory it takes."""

from dataclasses import dataclass

from ottla.machines.groups.group_memory import MEMBER_BYTES, PROTOCOL_BYTES, text_bytes


@dataclass(slots=True)
class Member:
    """One member, with its supported protocols and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata_by_protocol: dict[str, bytes]
    """The protocols it supports, in order of preference."""
    assignment: bytes = b""

    def supports_the_same(self, metadata_by_protocol: dict[str, bytes]) -> bool:
        """Whether these are the protocols that are known of it, in the same order."""
        return list(self.metadata_by_protocol.items()) == list(metadata_by_protocol.items())

    def described_bytes(self) -> int:
        """Return how much memory it takes, but for its assignment."""
        names = (self.member_id, self.group_instance_id, self.client_id, self.client_host)
        protocols = sum(
            PROTOCOL_BYTES + text_bytes(name) + len(metadata)
            for name, metadata in self.metadata_by_protocol.items()
        )
        return MEMBER_BYTES + sum(map(text_bytes, names)) + protocols

    def used_bytes(self) -> int:
        """Return how much memory it takes."""
        return self.described_bytes() + len(self.assignment)
