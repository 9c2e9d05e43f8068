"""The table of APIs: complete, and imported only on use."""

import subprocess
import sys

import pytest

from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY, api_of, key_of
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def test_every_key_has_a_request_and_a_response_of_the_same_versions() -> None:
    assert list(API_BY_KEY) == list(ApiKey)
    for key, api in API_BY_KEY.items():
        assert api.request.versions == api.response.versions
        assert key_of(api.request) is ApiKey(key)


def test_an_unknown_api_key_has_no_api() -> None:
    with pytest.raises(KeyError):
        api_of(4)
    with pytest.raises(KeyError):
        key_of(HeartbeatResponse)
    assert 4 not in API_BY_KEY
    assert ApiKey.HEARTBEAT in API_BY_KEY


def test_one_api_does_not_import_the_others() -> None:
    program = (
        "import sys; from ottla.wire.apis import api_of; api_of(12);"
        "print(*(name for name in sys.modules if name.startswith('ottla.wire.messages.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [HeartbeatRequest.__module__]
