"""The context of a request besides its fields, and the response of a request that must wait."""

from typing import NamedTuple, TypeVar

from ottla.machines.decision import Decision
from ottla.machines.groups.group_records import GroupRecord

T = TypeVar("T")


class Caller(NamedTuple):
    """The joining client, as members and operators of the group see it."""

    api_version: int
    client_id: str = ""
    client_host: str = ""


class NotYet(NamedTuple):
    """No response yet: wait for a notification of the group, then retry with this token.

    The number distinguishes the request from others of the same member.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    number: int


def answer_only(response: T) -> Decision[GroupRecord, T]:
    """Create a decision without records."""
    return Decision((), response)
