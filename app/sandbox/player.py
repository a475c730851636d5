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

from app.sandbox.frames import HEAD, STARTED, frame

VALUE, RAISED, NO_JSON, LOADED, NO_FUNCTION, MEMORY, TOO_MUCH = b"V", b"R", b"J", b"L", b"N", b"M", b"O"
"""The first byte of an answer."""
MOST_DEPTH: Final = 40
"""Slightly more than the service accepts, so that the service refuses."""
MODULE: Final = "program"


def play(channel: int) -> None:
    """Answers calls until the service sends no more."""
    _say(channel, STARTED, b"")
    token, order = _heard(channel)
    left = int(order["output_bytes"])
    function, trouble = _loaded(order["source"], order["function"])
    _say(channel, token, trouble or LOADED)
    while function is not None:
        token, arguments = _heard(channel)
        if arguments is None:
            return
        answer = _answer(function, arguments)
        left -= len(answer) - 1
        _say(channel, token, answer if left >= 0 else TOO_MUCH)


def _loaded(source: str, name: str) -> tuple[Callable[..., object] | None, bytes]:
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


def _answer(function: Callable[..., object], arguments: list[Any]) -> bytes:
    try:
        value = function(*arguments)
    except MemoryError:
        return MEMORY
    except BaseException:  # SystemExit too: leaving is no answer
        return RAISED
    try:
        return VALUE + json.dumps(_plain(value, 0), allow_nan=False, separators=(",", ":")).encode("ascii")
    except MemoryError:
        return MEMORY
    except BaseException:  # whatever its own methods raise
        return NO_JSON


def _plain(value: object, depth: int) -> object:
    """Converts a value to plain JSON types, tuples to arrays. Raises ValueError for other types and non-text keys."""
    if value is None or type(value) in (bool, str, int):
        return value
    if depth > MOST_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_text(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__float__(value)
    raise ValueError("no JSON")


def _text(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError("JSON's keys are texts")
    return str.__str__(key)


def _heard(channel: int) -> tuple[bytes, Any]:
    size, token = HEAD.unpack(_exactly(channel, HEAD.size))
    return token, json.loads(_exactly(channel, size))


def _exactly(channel: int, size: int) -> bytes:
    parts = []
    while size > 0:
        part = os.read(channel, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _say(channel: int, token: bytes, answer: bytes) -> None:
    message = memoryview(frame(token, answer))
    while message:
        message = message[os.write(channel, message) :]
