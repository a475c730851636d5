"""Runs one program in its own process. Standard library only.

Nothing here can be trusted once the program's first line has run, because it shares this interpreter. So no decision is
made here: the service requests one call after another, each with a new random token, and any answer with that token
counts as what the call returned.
"""

import json
import math
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from app.sandbox.frames import HEAD, STARTED, build_frame

VALUE, RAISED, NO_JSON, LOADED, NO_FUNCTION, MEMORY, TOO_MUCH = b"V", b"R", b"J", b"L", b"N", b"M", b"O"
"""The first byte of an answer."""
MAX_DEPTH: Final = 40
"""Slightly more than the service accepts, so that the service refuses."""
MODULE: Final = "program"
PART_BYTES: Final = 1 << 16
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def run_program(channel: int) -> None:
    """Answers calls until the service sends no more."""
    _send_answer(channel, STARTED, b"")
    token, order = _receive_message(channel)
    left = int(order["output_bytes"])
    function, trouble = _load_function(order["source"], order["function"])
    _send_answer(channel, token, trouble or LOADED)
    while function is not None:
        token, arguments = _receive_message(channel)
        if arguments is None:
            return
        answer = _call_function(function, arguments)
        left -= len(answer) - 1
        _send_answer(channel, token, answer if left >= 0 else TOO_MUCH)


def _load_function(source: str, name: str) -> tuple[Callable[..., object] | None, bytes]:
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # what this is for
        function = module.__dict__[name]
    except MemoryError:
        return None, MEMORY
    except BaseException:  # also when it wants to leave: then there is no function
        return None, NO_FUNCTION
    return (function, b"") if callable(function) else (None, NO_FUNCTION)


def _call_function(function: Callable[..., object], arguments: list[Any]) -> bytes:
    try:
        value = function(*arguments)
    except MemoryError:
        return MEMORY
    except BaseException:  # SystemExit too: leaving is no answer
        return RAISED
    try:
        return VALUE + _ENCODER.encode(_to_plain_json(value, 0)).encode("ascii")
    except MemoryError:
        return MEMORY
    except BaseException:  # whatever its own methods raise
        return NO_JSON


def _to_plain_json(value: object, depth: int) -> object:
    """Converts a value to plain JSON types, tuples to arrays. Raises ValueError for other types and non-text keys."""
    if value is None or type(value) in (bool, str, int):
        return value
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, list | tuple):
        return [_to_plain_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_require_text(key): _to_plain_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__float__(value)
    raise ValueError("no JSON")


def _require_text(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError("JSON's keys are texts")
    return str.__str__(key)


def _receive_message(channel: int) -> tuple[bytes, Any]:
    """One message is sent at a time, so all that there is to read is of this one."""
    message = _read_at_least(channel, b"", HEAD.size)
    size, token = HEAD.unpack_from(message)
    return token, json.loads(_read_at_least(channel, message, HEAD.size + size)[HEAD.size :])


def _read_at_least(channel: int, message: bytes, size: int) -> bytes:
    while len(message) < size:
        part = os.read(channel, max(size - len(message), PART_BYTES))
        if not part:
            raise EOFError
        message += part
    return message


def _send_answer(channel: int, token: bytes, answer: bytes) -> None:
    message = memoryview(build_frame(token, answer))
    while message:
        message = message[os.write(channel, message) :]
