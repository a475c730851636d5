"""The text of a batch: stored texts joined, parsed again only for groups that were split."""

import gzip
import json
from collections.abc import Sequence

from app.domain.trajectories import Part
from app.http.compat.atropos.reading import unpacked

GZIP_LEVEL = 1
GZIP_FROM = 1000
"""Bytes from which responses are compressed, as in Atropos."""

_BY_SEQUENCE = (
    "tokens",
    "masks",
    "scores",
    "advantages",
    "ref_logprobs",
    "messages",
    "inference_logprobs",
    "overrides",
    "images",
    "distill_token_ids",
    "distill_logprobs",
)


def batch_text(parts: Sequence[Part]) -> bytes:
    return b'{"batch":[' + b",".join(_text(part) for part in parts) + b"]}"


def _text(part: Part) -> bytes:
    text = unpacked(part.body)
    if part.whole:
        return text
    group = json.loads(text)
    count = len(group["tokens"])
    for name in _BY_SEQUENCE:
        value = group[name]
        if isinstance(value, list) and len(value) == count:
            group[name] = value[part.first : part.first + part.size]
    return json.dumps(group, separators=(",", ":"), ensure_ascii=False).encode()


def compressed(text: bytes) -> bytes:
    return gzip.compress(text, GZIP_LEVEL, mtime=0)
