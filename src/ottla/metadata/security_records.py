"""Records of users, tokens, quotas and ACLs, in the formats of Kafka's metadata log.

The image keeps them as they are, and snapshots have them; nothing else uses them yet.
"""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int32,
    int64,
    octets,
    string,
    uuid,
)


class DelegationTokenRecord(Message, versions=(0, 0), flexible_since=0):
    """A delegation token was created or renewed (KIP-900)."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array("string")
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class RemoveDelegationTokenRecord(Message, versions=(0, 0), flexible_since=0):
    """A delegation token has expired, or was removed."""

    token_id: str = string()


class UserScramCredentialRecord(Message, versions=(0, 0), flexible_since=0):
    """A user has this credential for a SCRAM mechanism."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = octets()
    stored_key: bytes = octets()
    server_key: bytes = octets()
    iterations: int = int32()


class RemoveUserScramCredentialRecord(Message, versions=(0, 0), flexible_since=0):
    """A user has no credential for a SCRAM mechanism any more."""

    name: str = string()
    mechanism: int = int8()


class QuotaEntity(Struct):
    """One part of a quota's entity, such as a user; the name is None for the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)


class ClientQuotaRecord(Message, versions=(0, 0), flexible_since=0):
    """A quota of an entity was set or removed."""

    entity: list[QuotaEntity] = array(QuotaEntity)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AccessControlEntryRecord(Message, versions=(0, 0), flexible_since=0):
    """An ACL was added."""

    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, versions=(0, 0), flexible_since=0):
    """An ACL was removed."""

    id: bytes = uuid()
