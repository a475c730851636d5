"""How a group is put before a judge: ids that mean nothing, and orders that depend on nothing but the texts."""

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

_ID_LENGTH: Final = 5


def opaque_ids(key: str, texts: Sequence[str]) -> dict[str, str]:
    """One id per text, the same in every reading of the group. `texts` are distinct; without `key` nobody can tell
    the id that a text will get."""
    ids: dict[str, str] = {}
    for text in sorted(texts):
        attempt = 0
        while (name := _letters(_keyed(key, "id", str(attempt), text))) in ids.values():
            attempt += 1
        ids[text] = name
    return ids


def mirrored_orders(key: str, texts: Sequence[str], pair: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A shuffle of distinct texts and its reverse; another shuffle for each `pair`. The order in which `texts` came
    makes no difference."""
    shuffled = _shuffled(key, texts, "order", str(pair))
    return shuffled, shuffled[::-1]


def circle(key: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Who sits beside whom where not everyone meets everyone; as blind to the order of `texts` as the orders are."""
    return _shuffled(key, texts, "circle", "")


def _shuffled(key: str, texts: Sequence[str], purpose: str, number: str) -> tuple[str, ...]:
    salt = base64.b16encode(_keyed(key, "group", *sorted(texts))).decode()
    return tuple(sorted(texts, key=lambda text: (_keyed(key, purpose, salt, number, text), text)))


def _keyed(key: str, *parts: str) -> bytes:
    """Each part is preceded by its length, so that no two lists of parts are the same bytes."""
    hashed = hashlib.blake2b(
        digest_size=16, key=hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    )
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big"))
        hashed.update(data)
    return hashed.digest()


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().lower()[:_ID_LENGTH]
