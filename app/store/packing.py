"""Long texts and long lists of numbers, packed: what a table's `packed` column holds in place of its JSON text.

The first byte of packed bytes is their form, the rest is a Zstandard frame. Whatever is packed comes back exactly as it
was: a log-probability is kept in four bytes only where these four say the same number.
"""

import struct
import sys
import threading
from array import array
from typing import Final, NamedTuple

import zstandard
from pydantic_core import from_json, to_json

from app.domain.tasks import Completion
from app.store.rows import decode, encode_completion

PACKED_FROM: Final = 4096
"""Characters of JSON from which on a text is packed. Packing as many takes 17 microseconds and saves half of them."""
NUMBERS_FROM: Final = 256
"""Token ids from which on a completion is packed, whatever its text."""
_LEVEL: Final = 3

_TEXT: Final = b"\x01"
_COMPLETION: Final = b"\x02"
_HEAD: Final = struct.Struct("<III")
"""Of a completion: the bytes of its JSON without numbers, the number of its token ids, the form of its logprobs."""
_ABSENT, _SINGLES, _JSON = 0, 1, 2
_SAMPLE: Final = 16


class StoredText(NamedTuple):
    """A JSON text as two columns. Where `packed` is not null, `text` is empty, which no reader takes for JSON."""

    text: str
    packed: bytes | None = None


class _Codec(threading.local):
    """Each thread's own: they are not safe for several, and to make one takes as long as to use it on a page."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_CODEC: Final = _Codec()


def is_long(completion: Completion) -> bool:
    """Whether it will be packed, and so takes long to encode; about, where much stands beside its text."""
    if completion.token_ids is not None and len(completion.token_ids) >= NUMBERS_FROM:
        return True
    if completion.text is not None:
        return len(completion.text) >= PACKED_FROM
    return sum(len(one.content or "") for one in completion.messages or ()) >= PACKED_FROM


def pack_text(text: str) -> StoredText:
    """`text` is JSON, and so can be encoded."""
    if len(text) < PACKED_FROM:
        return StoredText(text)
    return StoredText("", _TEXT + _CODEC.compress(text.encode()))


def measure_stored(stored: StoredText) -> int:
    return len(stored.text) + len(stored.packed or b"")


def unpack_text(text: str, packed: bytes | None) -> str:
    return text if packed is None else _open(packed, _TEXT).decode()


def pack_completion(completion: Completion) -> StoredText:
    ids = completion.token_ids
    if ids is None or len(ids) < NUMBERS_FROM:
        return pack_text(encode_completion(completion))
    body = encode_completion(completion.model_copy(update={"token_ids": None, "logprobs": None})).encode()
    form, numbers = _pack_logprobs(completion.logprobs)
    head = _HEAD.pack(len(body), len(ids), form)
    return StoredText("", _COMPLETION + _CODEC.compress(b"".join((head, body, _split(array("I", ids)), numbers))))


def unpack_completion(text: str, packed: bytes | None) -> Completion:
    if packed is None or packed[:1] == _TEXT:
        return decode(Completion, unpack_text(text, packed))
    whole = _open(packed, _COMPLETION)
    size, count, form = _HEAD.unpack_from(whole)
    ids, numbers = _HEAD.size + size, _HEAD.size + size + 4 * count
    rest = decode(Completion, whole[_HEAD.size : ids].decode())
    found = {"token_ids": tuple(_join("I", whole[ids:numbers])), "logprobs": _unpack_logprobs(form, whole[numbers:])}
    return rest.model_copy(update=found)


def _pack_logprobs(logprobs: tuple[float, ...] | None) -> tuple[int, bytes]:
    """In single precision where each is such a number, as inference servers compute them."""
    if logprobs is None:
        return _ABSENT, b""
    for some in (logprobs[:_SAMPLE], logprobs):
        singles = array("f", some)
        if tuple(singles) != some:
            return _JSON, to_json(logprobs)
    return _SINGLES, _split(singles)


def _unpack_logprobs(form: int, numbers: bytes) -> tuple[float, ...] | None:
    if form == _ABSENT:
        return None
    return tuple(_join("f", numbers) if form == _SINGLES else from_json(numbers))


def _split(numbers: "array[int] | array[float]") -> bytes:
    """All first bytes, then all second ones, and so on: the high ones of token ids hardly differ."""
    if sys.byteorder == "big":
        numbers.byteswap()
    held = numbers.tobytes()
    return b"".join(held[place :: numbers.itemsize] for place in range(numbers.itemsize))


def _join(kind: str, planes: bytes) -> "array[int] | array[float]":
    numbers = array(kind)
    held = bytearray(len(planes))
    count = len(planes) // numbers.itemsize
    for place in range(numbers.itemsize):
        held[place :: numbers.itemsize] = planes[place * count : (place + 1) * count]
    numbers.frombytes(held)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _open(packed: bytes, form: bytes) -> bytes:
    if packed[:1] != form:
        raise ValueError("a packed value has a form that this release does not know")
    return _CODEC.decompress(packed[1:])
