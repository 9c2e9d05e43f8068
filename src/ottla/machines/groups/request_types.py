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
    """No answer yet: wait until the group's bell rings, then ask again with this.

    The number tells the request from any other that the same member sends.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    number: int


def answer_only(response: T) -> Decision[GroupRecord, T]:
    """Make the decision that writes nothing."""
    return Decision((), response)
