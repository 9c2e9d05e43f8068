"""The principal and the address of a client in an Envelope, as bytes.

They are Kafka's bytes: the principal as Kafka's default principal builder writes it, with its
version first, and the address in network order.
"""

import struct
from ipaddress import ip_address
from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import decode
from ottla.wire.schema import Message, boolean, string
from ottla.wire.writing import encode

NO_ADDRESS: Final = bytes(4)
"""The address of a client without an IP address."""
_VERSION: Final = struct.Struct(">h")


class EncodedPrincipal(Message, versions=(0, 0), flexible_since=0):
    """Kafka's DefaultPrincipalData, which also tells whether a delegation token was used."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


def principal_bytes(principal: str) -> bytes:
    """Write a principal, `User:name`."""
    kind, _, name = principal.partition(":")
    version = EncodedPrincipal.versions[1]
    return _VERSION.pack(version) + encode(EncodedPrincipal(type=kind, name=name), version)


def principal_of(data: bytes) -> str:
    """Read a principal; ApiError PRINCIPAL_DESERIALIZATION_FAILURE for any other bytes."""
    first, last = EncodedPrincipal.versions
    version = _VERSION.unpack_from(data)[0] if len(data) >= _VERSION.size else -1
    if not first <= version <= last:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        found = decode(EncodedPrincipal, version, memoryview(data), _VERSION.size)
    except ProtocolError:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None
    return f"{found.type}:{found.name}"


def address_bytes(address: str) -> bytes:
    """Write an IP address."""
    try:
        return ip_address(address).packed
    except ValueError:
        return NO_ADDRESS


def address_of(data: bytes) -> str:
    """Read an IP address; ApiError INVALID_REQUEST if it has another size."""
    try:
        return str(ip_address(data))
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"an envelope with a client address of {len(data)} bytes"
        ) from None
