"""Requests for ACLs, quotas, SCRAM users and delegation tokens get an error, not a hang-up."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.api_versions import ApiVersionsRequest
from tests.clients.raw_requests import RawConnection
from tests.clients.security_requests import ALTER_QUOTAS, ALTER_SCRAM, AS_KAFKA

SECONDS_MAX = 240
OFFERED = {
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def connection(servers: str) -> Iterator[RawConnection]:
    with RawConnection(servers) as connected:
        yield connected


def test_api_versions_lists_the_versions_that_kafka_offers(connection: RawConnection) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    found = connection.ask(ApiKey.API_VERSIONS, 3, request).api_keys
    versions = {one.api_key: (one.min_version, one.max_version) for one in found}
    assert {key: versions.get(key) for key in OFFERED} == OFFERED


def test_acl_requests_are_refused_for_each_item(connection: RawConnection) -> None:
    answers = ask_all(connection)
    assert answers[ApiKey.DESCRIBE_ACLS].error_code == ErrorCode.SECURITY_DISABLED
    assert answers[ApiKey.DESCRIBE_ACLS].resources == []
    for results in (
        answers[ApiKey.CREATE_ACLS].results,
        answers[ApiKey.DELETE_ACLS].filter_results,
    ):
        assert [one.error_code for one in results] == [ErrorCode.SECURITY_DISABLED] * 2
        assert all("no authorizer" in one.error_message for one in results)


def test_no_quotas_and_no_credentials_are_described(connection: RawConnection) -> None:
    answers = ask_all(connection)
    quotas = answers[ApiKey.DESCRIBE_CLIENT_QUOTAS]
    assert (quotas.error_code, quotas.entries) == (0, [])
    credentials = answers[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS]
    assert credentials.error_code == 0
    assert {one.user: one.error_code for one in credentials.results} == {
        "ada": ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
    }


def test_delegation_tokens_are_refused_on_a_plaintext_listener(connection: RawConnection) -> None:
    answers = ask_all(connection)
    tokens = [answer for key, answer in answers.items() if "DELEGATION" in key.name]
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert [answer.error_code for answer in tokens] == [refused] * 4
    created = answers[ApiKey.CREATE_DELEGATION_TOKEN]
    assert (created.principal_type, created.principal_name) == ("User", "ANONYMOUS")


def test_altering_quotas_is_refused_for_each_entity(connection: RawConnection) -> None:
    entries = connection.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, ALTER_QUOTAS).entries
    assert [one.error_code for one in entries] == [ErrorCode.UNSUPPORTED_VERSION] * 2
    assert [one.entity[0].entity_name for one in entries] == ["ada", None]
    assert all("does not support client quotas" in one.error_message for one in entries)


def test_altering_credentials_is_refused_once_for_each_user(connection: RawConnection) -> None:
    results = connection.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, ALTER_SCRAM).results
    assert {one.user: one.error_code for one in results} == {
        "ada": ErrorCode.UNSUPPORTED_VERSION,
        "bob": ErrorCode.UNSUPPORTED_VERSION,
    }
    assert len(results) == 2


def test_librdkafka_reports_that_security_is_disabled(servers: str) -> None:
    rule = AclBinding(
        *(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL),
        *("User:ada", "*", AclOperation.READ, AclPermissionType.ALLOW),
    )
    anything = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY),
        *(None, None, AclOperation.ANY, AclPermissionType.ANY),
    )
    admin = AdminClient({"bootstrap.servers": servers})
    # This client drops the error of DescribeAcls and keeps the list.
    assert admin.describe_acls(anything, request_timeout=SECONDS_MAX).result(SECONDS_MAX) == []
    assert admin.describe_user_scram_credentials(request_timeout=SECONDS_MAX).result() == {}
    (created,) = admin.create_acls([rule], request_timeout=SECONDS_MAX).values()
    (deleted,) = admin.delete_acls([anything], request_timeout=SECONDS_MAX).values()
    for outcome in (created, deleted):
        with pytest.raises(KafkaException) as raised:
            outcome.result(SECONDS_MAX)
        assert raised.value.args[0].code() == ErrorCode.SECURITY_DISABLED


def ask_all(connection: RawConnection) -> dict[ApiKey, Any]:
    """Send every request on one connection, which stays open."""
    return {key: connection.ask(key, version, request) for key, version, request in AS_KAFKA}
