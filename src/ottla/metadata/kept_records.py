"""Records that the image keeps as they are: quotas, ACLs, SCRAM credentials, delegation tokens."""

from ottla.metadata.image import KeptKey
from ottla.metadata.records import MetadataRecord
from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)


def key_of(record: MetadataRecord) -> KeptKey:
    """Return the key that a later record of the same thing has, too."""
    match record:
        case ClientQuotaRecord():
            entity = frozenset((one.entity_type, one.entity_name) for one in record.entity)
            return (ClientQuotaRecord, entity, record.key)
        case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
            return (AccessControlEntryRecord, record.id)
        case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
            return (UserScramCredentialRecord, record.mechanism, record.name)
        case DelegationTokenRecord() | RemoveDelegationTokenRecord():
            return (DelegationTokenRecord, record.token_id)
        case _:
            raise AssertionError(f"{record!r} is not kept")


def removed_key_of(record: MetadataRecord) -> KeptKey | None:
    """Return the key of the kept record that a record removes, if it removes any."""
    match record:
        case (
            RemoveAccessControlEntryRecord()
            | RemoveUserScramCredentialRecord()
            | RemoveDelegationTokenRecord()
        ):
            return key_of(record)
        case ClientQuotaRecord() if record.remove:
            return key_of(record)
        case _:
            return None


def removal_of(record: MetadataRecord) -> MetadataRecord:
    """Return the record that removes a kept one."""
    match record:
        case ClientQuotaRecord():
            return ClientQuotaRecord(entity=record.entity, key=record.key, remove=True)
        case AccessControlEntryRecord():
            return RemoveAccessControlEntryRecord(id=record.id)
        case UserScramCredentialRecord():
            return RemoveUserScramCredentialRecord(name=record.name, mechanism=record.mechanism)
        case DelegationTokenRecord():
            return RemoveDelegationTokenRecord(token_id=record.token_id)
        case _:
            raise AssertionError(f"{record!r} is not kept")
