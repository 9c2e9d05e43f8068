"""Requests that make a Kafka controller write many kinds of metadata records."""

from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla import Admin, ConfigResource, TopicPartition
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    EntityData,
    OpData,
)
from tests.clients.admin_stories import eventually
from tests.clients.raw_requests import ask

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
"""ACLs are written only by a controller with an authorizer."""
_QUOTAS_VERSION = 1


def change_metadata(servers: str) -> None:
    """Change topics, settings, ACLs, SCRAM users and quotas of a cluster of two brokers."""
    with Admin(bootstrap_servers=servers) as admin:
        change_topics(admin)
        change_settings(admin)
    change_security(servers)


def change_topics(admin: Admin) -> None:
    """Create, extend, move and delete topics."""
    admin.topics.create(["kept", "moved"], assignments={0: [1, 2], 1: [2, 1]})
    admin.topics.create("deleted", partitions=3, replication_factor=1)
    admin.topics.create_partitions({"kept": 4})
    admin.partitions.reassign({TopicPartition("moved", 0): [2], TopicPartition("moved", 1): [1]})
    eventually(lambda: admin.partitions.reassignments() == {})
    admin.topics.delete("deleted")


def change_settings(admin: Admin) -> None:
    """Set and delete settings of topics, brokers, groups and client metrics."""
    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource.topic("kept"): {"retention.ms": "1000", "segment.bytes": "2000000"},
        ConfigResource.broker(1): {"log.cleaner.io.max.bytes.per.second": "1000000"},
        ConfigResource.every_broker(): {"message.max.bytes": "2000000"},
        ConfigResource.group("readers"): {"consumer.session.timeout.ms": "50000"},
        ConfigResource.client_metrics("all"): {"interval.ms": "60000"},
    }
    admin.configs.alter(changes)
    admin.configs.alter({ConfigResource.topic("kept"): {"segment.bytes": None}})


def change_security(servers: str) -> None:
    """Write and delete ACLs, SCRAM users and quotas."""
    client = AdminClient({"bootstrap.servers": servers})
    pattern = (ResourceType.TOPIC, "kept", ResourcePatternType.LITERAL)
    for user in ("User:felix", "User:max"):
        rule = AclBinding(*pattern, user, "*", AclOperation.READ, AclPermissionType.ALLOW)
        results(client.create_acls([rule]))
    gone = AclBindingFilter(*pattern, "User:max", "*", AclOperation.READ, AclPermissionType.ALLOW)
    results(client.delete_acls([gone]))
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    users = [UserScramCredentialUpsertion(name, scram, b"secret") for name in ("felix", "max")]
    results(client.alter_user_scram_credentials(users))
    deletion = UserScramCredentialDeletion("max", ScramMechanism.SCRAM_SHA_256)
    results(client.alter_user_scram_credentials([deletion]))
    for remove in (False, True):
        change_quota(servers, "producer_byte_rate", 1e6, remove=remove)
    change_quota(servers, "consumer_byte_rate", 2e6)


def change_quota(servers: str, key: str, value: float, *, remove: bool = False) -> None:
    """Set or remove a quota of a user's default client."""
    entity = [
        EntityData(entity_type="user", entity_name="felix"),
        EntityData(entity_type="client-id", entity_name=None),
    ]
    entry = AlterClientQuotasRequestEntry(
        entity=entity, ops=[OpData(key=key, value=value, remove=remove)]
    )
    request = AlterClientQuotasRequest(entries=[entry])
    answer = ask(servers.partition(",")[0], ApiKey.ALTER_CLIENT_QUOTAS, _QUOTAS_VERSION, request)
    assert [row.error_code for row in answer.entries] == [0]


def results(futures: dict[Any, Any]) -> None:
    """Wait for the calls of librdkafka's admin client."""
    for future in futures.values():
        future.result()
