"""Messages between the service and a worker: length, token of the call, JSON. Standard library only."""

import json
import struct
from typing import BinaryIO

HEAD = struct.Struct(">I16s")
"""How many bytes of JSON follow; the token of the call."""
STARTED = b"0" * 16
"""The token of a worker's first message."""
SLACK_BYTES = 4096
"""What surrounds a result, and the most that anything else which a worker says may be."""


def frame(token: bytes, body: bytes) -> bytes:
    return HEAD.pack(len(body), token) + body


def encoded(value: object) -> bytes:
    """ValueError, TypeError or RecursionError for what is no JSON."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def read_frame(stream: BinaryIO) -> tuple[bytes, dict[str, object]] | None:
    """Token and message of the service, which is trusted; None at the end of the stream."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, token = HEAD.unpack(head)
    message: dict[str, object] = json.loads(stream.read(size))
    return token, message
