"""Finds the coordinator of a group or of a transactional id."""

from typing import Final

from ottla.clients.errors import check, only
from ottla.model.address import Address
from ottla.rpc.connection import Connection
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
_IN_A_LIST_SINCE: Final = 4


async def find_coordinator(
    connection: Connection, key: str, key_type: int, *, timeout_ms: int
) -> Address:
    """Ask a broker for the coordinator of a group or a transactional id."""
    is_list = connection.version_for(FindCoordinatorRequest) >= _IN_A_LIST_SINCE
    request = FindCoordinatorRequest(
        key="" if is_list else key,
        key_type=key_type,
        coordinator_keys=[key] if is_list else [],
    )
    answer = await connection.ask(request, FindCoordinatorResponse, timeout_ms=timeout_ms)
    found = only(answer.coordinators, "a coordinator") if is_list else answer
    check(found.error_code, found.error_message or f"the coordinator of {key!r}")
    return Address(found.host, found.port)
