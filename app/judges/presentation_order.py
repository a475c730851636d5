"""How a group is presented to a judge: opaque ids, and orders that depend only on the texts."""

import base64
import hashlib
import math
from collections.abc import Sequence
from typing import Final

_ID_LENGTH: Final = 5


def derive_opaque_ids(key: str, texts: Sequence[str]) -> dict[str, str]:
    """One id per text, the same in every judgement of the group. `texts` are distinct. Ids are unpredictable without
    `key`."""
    ids: dict[str, str] = {}
    for text in sorted(texts):
        attempt = 0
        while (name := _encode_letters(_compute_keyed_hash(key, "id", str(attempt), text))) in ids.values():
            attempt += 1
        ids[text] = name
    return ids


def build_mirrored_orders(key: str, texts: Sequence[str], pair: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A shuffle of distinct texts and its reverse, with another shuffle for each `pair`. Independent of the order of
    `texts`."""
    shuffled = _shuffle_texts(key, texts, "order", str(pair))
    return shuffled, shuffled[::-1]


def list_mirrored_orders(
    key: str, texts: Sequence[str], pairs: int
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Up to `pairs` mirrored orders of which none repeats another: two texts have one pair, three have three."""
    found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    number = 0
    while len(found) < min(pairs, math.factorial(min(len(texts), 5)) // 2):
        orders = build_mirrored_orders(key, texts, number)
        number += 1
        if not any(orders[0] in known for known in found):
            found.append(orders)
    return tuple(found)


def choose_first(key: str, texts: Sequence[str], count: int) -> int:
    """Which of `count` judges reads the group first."""
    return int.from_bytes(_compute_keyed_hash(key, "judge", *sorted(texts))) % count


def arrange_circle(key: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The circle of neighbours for groups where not every pair is compared. Independent of the order of `texts`."""
    return _shuffle_texts(key, texts, "circle", "")


def _shuffle_texts(key: str, texts: Sequence[str], purpose: str, number: str) -> tuple[str, ...]:
    salt = base64.b16encode(_compute_keyed_hash(key, "group", *sorted(texts))).decode()
    return tuple(sorted(texts, key=lambda text: (_compute_keyed_hash(key, purpose, salt, number, text), text)))


def _compute_keyed_hash(key: str, *parts: str) -> bytes:
    """Each part is preceded by its length, so that different lists of parts never give the same bytes."""
    hashed = hashlib.blake2b(
        digest_size=16, key=hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    )
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big"))
        hashed.update(data)
    return hashed.digest()


def _encode_letters(data: bytes) -> str:
    return base64.b32encode(data).decode().lower()[:_ID_LENGTH]
