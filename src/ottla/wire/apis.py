"""The table of APIs: the request and the response of each key.

They are found by name: JOIN_GROUP is JoinGroupRequest and JoinGroupResponse in
messages/join_group.py. A module is imported at the first use of its API: a client uses a dozen.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from ottla.wire.api_key import ApiKey
from ottla.wire.schema import Message

_MESSAGES: Final = "ottla.wire.messages"
_KEYS: Final = {int(key): key for key in ApiKey}


class Api(NamedTuple):
    """The request and the response of one API. Both have the same versions."""

    request: type[Message]
    response: type[Message]


@cache
def api_of(key: int) -> Api:
    """Return the API of a key; KeyError if there is none."""
    if key not in _KEYS:
        raise KeyError(key)
    name = _KEYS[key].name
    module = import_module(f"{_MESSAGES}.{name.lower()}")
    stem = "".join(word.capitalize() for word in name.split("_"))
    return Api(getattr(module, f"{stem}Request"), getattr(module, f"{stem}Response"))


@cache
def key_of(request: type[Message]) -> ApiKey:
    """Return the key of a request's API; KeyError if it is no request."""
    key = ApiKey[request.__module__.rpartition(".")[2].upper()]
    if api_of(key).request is not request:
        raise KeyError(request)
    return key


class _Apis(Mapping[int, Api]):
    """All APIs, in the order of their keys."""

    def __getitem__(self, key: int) -> Api:
        return api_of(key)

    def __iter__(self) -> Iterator[int]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)


API_BY_KEY: Final[Mapping[int, Api]] = _Apis()
