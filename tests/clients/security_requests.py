"""One request of each security API, in the newest version that Kafka 4.3 offers."""

from typing import Final

from ottla.wire.api_key import ApiKey
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    EntityData,
    OpData,
)
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.wire.schema import Message

ANY: Final = 1
"""The filter value for any resource type, pattern type, operation and permission."""
_RULE: Final = AclCreation(
    resource_type=2,
    resource_name="t",
    resource_pattern_type=3,
    principal="User:ada",
    host="*",
    operation=3,
    permission_type=3,
)
_FILTER: Final = DeleteAclsFilter(
    resource_type_filter=2,
    resource_name_filter="t",
    pattern_type_filter=3,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)

AS_KAFKA: Final[tuple[tuple[ApiKey, int, Message], ...]] = (
    (
        ApiKey.DESCRIBE_ACLS,
        3,
        DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        ),
    ),
    (ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[_RULE, _RULE])),
    (ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=[_FILTER, _FILTER])),
    (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        DescribeClientQuotasRequest(
            components=[ComponentData(entity_type="user", match_type=2, match=None)]
        ),
    ),
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        DescribeUserScramCredentialsRequest(users=None),
    ),
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        DescribeUserScramCredentialsRequest(
            users=[UserName(name="ada"), UserName(name="ada"), UserName(name="bob")]
        ),
    ),
    (
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=-1
        ),
    ),
    (ApiKey.RENEW_DELEGATION_TOKEN, 2, RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1)),
    (
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        2,
        ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
    ),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest(owners=None)),
)
"""Requests with the same response from a Kafka without security."""

ALTER_QUOTAS: Final = AlterClientQuotasRequest(
    entries=[
        AlterClientQuotasRequestEntry(
            entity=[EntityData(entity_type="user", entity_name=user)],
            ops=[OpData(key="producer_byte_rate", value=1024.0)],
        )
        for user in ("ada", None)
    ]
)
ALTER_SCRAM: Final = AlterUserScramCredentialsRequest(
    deletions=[ScramCredentialDeletion(name="ada", mechanism=1)],
    upsertions=[
        ScramCredentialUpsertion(
            name=name, mechanism=2, iterations=4096, salt=b"salt", salted_password=b"hash"
        )
        for name in ("ada", "bob")
    ],
)
