"""Groups as nearly every environment sends them, read by a parser that makes numbers of them and nothing more.

It takes what the model `ScoredData` takes strictly, in half the time, and leaves everything else to the model: what
needs a conversion, what has other keys or one twice, what does not fit together, what is no JSON.
"""

from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from app.compat.atropos.wire import Rows, ScoredData, faults

_ABSENT = msgspec.UNSET
Absent = msgspec.UnsetType
_NO_TEXT = msgspec.Raw()


class _Parsed(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Numbers typed, the rest as text. Logprobs that are null are not plain: they are never sent on as that."""

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    advantages: Rows | Absent | None = _ABSENT
    ref_logprobs: Rows | Absent | None = _ABSENT
    messages: msgspec.Raw = _NO_TEXT
    generation_params: msgspec.Raw = _NO_TEXT
    inference_logprobs: Rows | Absent = _ABSENT
    overrides: msgspec.Raw = _NO_TEXT
    group_overrides: msgspec.Raw = _NO_TEXT
    images: msgspec.Raw = _NO_TEXT
    env_id: int | Absent | None = _ABSENT
    distill_token_ids: list[list[list[int]]] | Absent | None = _ABSENT
    distill_logprobs: list[Rows] | Absent | None = _ABSENT


_PARSER = msgspec.json.Decoder(_Parsed)
_SEVERAL = msgspec.json.Decoder(list[msgspec.Raw])
_NAMES = _Parsed.__struct_fields__
_TEXTS = {
    name: TypeAdapter[object](ScoredData.model_fields[name].rebuild_annotation())
    for name in ("messages", "generation_params", "overrides", "group_overrides", "images")
}


def plain_group(text: bytes) -> ScoredData | None:
    """None for what the model has to look at."""
    try:
        values = _values(text)
    except (msgspec.MsgspecError, ValidationError, RecursionError):
        return None
    if values is None:
        return None
    group = ScoredData.model_construct(**values)
    return group if next(faults(group), None) is None else None


def _values(text: bytes) -> dict[str, Any] | None:
    """By the names that are there; None where one is there twice, since nobody looked at what it held first. Then there
    are more quotation marks than those of the names and of the texts that were found."""
    parsed = _PARSER.decode(text)
    values = {name: getattr(parsed, name) for name in _NAMES}
    given = {name: value for name, value in values.items() if value is not _ABSENT and value is not _NO_TEXT}
    texts = {name: bytes(value) for name, value in given.items() if name in _TEXTS}
    if _quotes(text) != 2 * len(given) + sum(map(_quotes, texts.values())):
        return None
    return given | {name: _TEXTS[name].validate_json(value, strict=True) for name, value in texts.items()}


def _quotes(text: bytes) -> int:
    """How many quotation marks; `count` looks at every byte by itself, `find` does not."""
    count = 0
    place = text.find(b'"')
    while place >= 0:
        count += 1
        place = text.find(b'"', place + 1)
    return count


def plain_texts(text: bytes) -> list[bytes] | None:
    """Of the items of a JSON array; None for what is none."""
    try:
        return [bytes(item) for item in _SEVERAL.decode(text)]
    except (msgspec.MsgspecError, RecursionError):
        return None
