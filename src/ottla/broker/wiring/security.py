"""The APIs of ACLs, quotas, SCRAM credentials and delegation tokens, which nothing supports yet."""

from ottla.broker.handlers import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
)
from ottla.broker.requests.routes import Route
from ottla.wire.api_key import ApiKey


def security_routes() -> dict[int, Route]:
    """Create the handlers that refuse security requests, or return that nothing is set.

    Every broker handles them itself: the controller has no other data.
    """
    return {
        ApiKey.ALTER_CLIENT_QUOTAS: Route(
            alter_client_quotas.VERSIONS, alter_client_quotas.AlterClientQuotasHandler().handle
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Route(
            alter_user_scram_credentials.VERSIONS,
            alter_user_scram_credentials.AlterUserScramCredentialsHandler().handle,
        ),
        ApiKey.CREATE_ACLS: Route(create_acls.VERSIONS, create_acls.CreateAclsHandler().handle),
        ApiKey.CREATE_DELEGATION_TOKEN: Route(
            create_delegation_token.VERSIONS,
            create_delegation_token.CreateDelegationTokenHandler().handle,
        ),
        ApiKey.DELETE_ACLS: Route(delete_acls.VERSIONS, delete_acls.DeleteAclsHandler().handle),
        ApiKey.DESCRIBE_ACLS: Route(
            describe_acls.VERSIONS, describe_acls.DescribeAclsHandler().handle
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Route(
            describe_client_quotas.VERSIONS,
            describe_client_quotas.DescribeClientQuotasHandler().handle,
        ),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: Route(
            describe_delegation_token.VERSIONS,
            describe_delegation_token.DescribeDelegationTokenHandler().handle,
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Route(
            describe_user_scram_credentials.VERSIONS,
            describe_user_scram_credentials.DescribeUserScramCredentialsHandler().handle,
        ),
        ApiKey.EXPIRE_DELEGATION_TOKEN: Route(
            expire_delegation_token.VERSIONS,
            expire_delegation_token.ExpireDelegationTokenHandler().handle,
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: Route(
            renew_delegation_token.VERSIONS,
            renew_delegation_token.RenewDelegationTokenHandler().handle,
        ),
    }
