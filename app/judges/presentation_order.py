"""How a group is presented to a judge: letters by place, and orders that depend only on the texts."""

import base64
import hashlib
import math
import string
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from app.domain.digests import digest
from app.domain.judging import JudgeRequest

_ID_LENGTH: Final = 5

MirroredOrders = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""Pairs of an order and its reverse."""


def derive_opaque_ids(key: str, texts: Sequence[str]) -> dict[str, str]:
    """One id per text, the same in every judgement of the group, for the record; judges see letters. `texts` are
    distinct. Ids are unpredictable without `key`."""
    ids: dict[str, str] = {}
    for text in sorted(texts):
        attempt = 0
        while (name := _encode_letters(_compute_keyed_hash(key, "id", str(attempt), text))) in ids.values():
            attempt += 1
        ids[text] = name
    return ids


@lru_cache(maxsize=256)
def name_places(count: int) -> tuple[str, ...]:
    """A, B, C and so on; AA follows Z."""
    return tuple(_name_place(place) for place in range(count))


def assign_letters(request: JudgeRequest) -> tuple[str, ...]:
    """What the judge calls each candidate. Letters go by place, so the mirrored order gives a reply another letter. A
    request without a mirror turns them by a hash of its task and texts, so that no place always has the same letter."""
    letters = name_places(len(request.candidates))
    if request.mirrored or not letters:
        return letters
    turn = int(digest(sorted(candidate.id for candidate in request.candidates)), 16) % len(letters)
    return letters[turn:] + letters[:turn]


def build_mirrored_orders(key: str, texts: Sequence[str], pair: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A shuffle of distinct texts and its reverse, with another shuffle for each `pair`. Independent of the order of
    `texts`."""
    shuffled = _shuffle_texts(key, texts, "order", str(pair))
    return shuffled, shuffled[::-1]


def list_mirrored_orders(key: str, texts: Sequence[str], pairs: int) -> MirroredOrders:
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
    return 0 if count == 1 else int.from_bytes(_compute_keyed_hash(key, "judge", *sorted(texts))) % count


def arrange_circle(key: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The circle of neighbours for groups where not every pair is compared. Independent of the order of `texts`."""
    return _shuffle_texts(key, texts, "circle", "")


def _shuffle_texts(key: str, texts: Sequence[str], purpose: str, number: str) -> tuple[str, ...]:
    salt = base64.b16encode(_compute_keyed_hash(key, "group", *sorted(texts))).decode()
    shared = _add_parts(_begin_keyed_hash(key), (purpose, salt, number))
    hashes = {text: _add_parts(shared, (text,)).digest() for text in texts}
    return tuple(sorted(texts, key=lambda text: (hashes[text], text)))


def _compute_keyed_hash(key: str, *parts: str) -> bytes:
    return _add_parts(_begin_keyed_hash(key), parts).digest()


@lru_cache(maxsize=64)
def _begin_keyed_hash(key: str) -> "hashlib.blake2b":
    return hashlib.blake2b(
        digest_size=16, key=hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    )


def _add_parts(before: "hashlib.blake2b", parts: Iterable[str]) -> "hashlib.blake2b":
    """Each part is preceded by its length, so that different lists of parts never give the same bytes."""
    hashed = before.copy()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed


def _name_place(place: int) -> str:
    before, letter = divmod(place, len(string.ascii_uppercase))
    return (_name_place(before - 1) if before else "") + string.ascii_uppercase[letter]


def _encode_letters(data: bytes) -> str:
    return base64.b32encode(data[:_ID_LENGTH]).decode().lower()[:_ID_LENGTH]
