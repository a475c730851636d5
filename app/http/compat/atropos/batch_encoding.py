"""The text of a batch: stored texts joined, parsed again only for groups that were split."""

import gzip
import json
from collections.abc import Sequence

from app.domain.trajectories import BatchPart
from app.http.compat.atropos.packing import unpack_group

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


def build_batch_text(parts: Sequence[BatchPart]) -> bytes:
    return b'{"batch":[' + b",".join(_build_group_text(part) for part in parts) + b"]}"


def _build_group_text(part: BatchPart) -> bytes:
    text = unpack_group(part.body)
    if part.whole:
        return text
    group = json.loads(text)
    count = len(group["tokens"])
    for name in _BY_SEQUENCE:
        value = group[name]
        if isinstance(value, list) and len(value) == count:
            group[name] = value[part.first : part.first + part.size]
    return json.dumps(group, separators=(",", ":"), ensure_ascii=False).encode()


def compress_text(text: bytes) -> bytes:
    return gzip.compress(text, GZIP_LEVEL, mtime=0)
