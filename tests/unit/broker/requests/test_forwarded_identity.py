"""The identity of a client in an Envelope, in the bytes of Kafka's classes."""

import pytest

from ottla.broker.requests.forwarded_identity import (
    NO_ADDRESS,
    address_bytes,
    address_of,
    principal_bytes,
    principal_of,
)


def test_a_principal_has_the_bytes_of_kafkas_default_principal_builder() -> None:
    written = principal_bytes("User:ANONYMOUS")
    assert written == b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"
    assert principal_of(written) == "User:ANONYMOUS"


def test_a_name_may_have_a_colon() -> None:
    assert principal_of(principal_bytes("User:CN=a:b")) == "User:CN=a:b"


@pytest.mark.parametrize(
    ("address", "data"), [("127.0.0.1", b"\x7f\x00\x00\x01"), ("::1", bytes(15) + b"\x01")]
)
def test_an_address_is_in_network_order(address: str, data: bytes) -> None:
    assert address_bytes(address) == data
    assert address_of(data) == address


def test_a_client_without_an_ip_address_has_none() -> None:
    assert address_bytes("a-host") == NO_ADDRESS
