"""Fuzzing: any frame from a client is either decoded to a request or raises one ProtocolError.

Frames are random bytes, or valid frames with a few bytes changed, cut or inserted. The number of
frames is bounded; a failure prints the seed.
"""

import random

import pytest

from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.codec import decode_request, decode_response
from ottla.wire.headers import (
    RequestHeader,
    read_request_header,
    request_header_version,
    write_request_header,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.writing import encode

FRAMES_PER_API = 400
TELLING_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


@pytest.mark.parametrize("api_key", list(ApiKey), ids=lambda key: key.name)
def test_any_frame_is_a_request_or_a_protocol_error(api_key: ApiKey) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    for _ in range(FRAMES_PER_API):
        frame = memoryview(_frame(api_key, dice))
        try:
            header, position = read_request_header(frame)
            decode_request(header, frame, position)
        except ProtocolError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}, frame {bytes(frame).hex()}") from error


@pytest.mark.parametrize("api_key", list(ApiKey), ids=lambda key: key.name)
def test_any_frame_is_an_answer_or_a_protocol_error(api_key: ApiKey) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    first, last = API_BY_KEY[api_key].response.versions
    for _ in range(FRAMES_PER_API):
        raw = _bytes(dice, 80)
        try:
            decode_response(api_key, dice.randint(first, last), memoryview(raw))
        except ProtocolError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}, frame {raw.hex()}") from error


def _frame(api_key: ApiKey, dice: random.Random) -> bytes:
    cls = API_BY_KEY[api_key].request
    version = dice.randint(cls.versions[0], cls.versions[1] + 1)
    header = RequestHeader(api_key, version, dice.getrandbits(31), "fuzz")
    frame = write_request_header(header, request_header_version(api_key, version))
    if dice.random() < 0.5:
        return frame + _bytes(dice, 80)
    return _damaged(frame + encode(cls(), min(version, cls.versions[1])), dice)


def _damaged(frame: bytes, dice: random.Random) -> bytes:
    raw = bytearray(frame)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(raw) + 1)
        raw[at : at + dice.randint(0, 2)] = _bytes(dice, 3)
    return bytes(raw)


def _bytes(dice: random.Random, count_max: int) -> bytes:
    count = dice.randint(0, count_max)
    if dice.random() < 0.5:
        return dice.randbytes(count)
    return bytes(dice.choice(TELLING_BYTES) for _ in range(count))
