"""Messages between the service and its processes, over a socket of their own. Standard library only.

A message is its length, the token of its call, and JSON. The token is random, so nothing that was written before the
call can pass for its answer.
"""

import json
import os
import resource
import struct
from typing import BinaryIO, Final

HEAD: Final = struct.Struct(">I16s")
"""The length of the JSON in bytes; the call's token."""
STARTED: Final = b"0" * 16
"""The token of a worker's first message."""
SLACK_BYTES: Final = 4096
"""Bytes around a result, and the maximum size of a worker's other messages."""


def build_frame(token: bytes, body: bytes) -> bytes:
    return HEAD.pack(len(body), token) + body


def encode_json(value: object) -> bytes:
    """Encodes JSON. Raises ValueError, TypeError or RecursionError if the value is not JSON."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def read_frame(stream: BinaryIO) -> tuple[bytes, dict[str, object]] | None:
    """Reads a token and message from the service, which is trusted; None at the end of the stream."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, token = HEAD.unpack(head)
    message: dict[str, object] = json.loads(stream.read(size))
    return token, message


_MAX_DESCRIPTOR: Final = 1 << 20
"""The default maximum number of a descriptor."""


def take_socket() -> int:
    """Moves the socket from descriptor 0 to a new one, so that functions and programs cannot read from it or print to
    it. Closes all other descriptors: under some event loops those of the service's parents are inherited."""
    os.closerange(3, max(_MAX_DESCRIPTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    own = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return own
