"""Rows: models encoded as JSON, times as microseconds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import ColumnElement, func, or_

from app.domain.tasks import LARGE_TEXT, Completion
from app.domain.values import is_encodable

ModelT = TypeVar("ModelT", bound=BaseModel)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PIECE: Final = 256 * 1024
"""Characters, encoded in a few milliseconds."""


def encode(value: BaseModel, exclude: set[str] | None = None) -> str:
    """A model as JSON without default values. NUL and lone surrogates are escaped."""
    try:
        return value.__pydantic_serializer__.to_json(value, exclude=exclude, exclude_defaults=True).decode()
    except PydanticSerializationError:  # a lone surrogate, which UTF-8 cannot hold but an ASCII escape can
        return json.dumps(value.model_dump(mode="json", exclude=exclude, exclude_defaults=True))


def encode_completion(completion: Completion) -> str:
    """As `encode`. Long texts are encoded in pieces, between which other threads run."""
    if completion.text is None:
        messages = ",".join(_encode_text_first(message, "content") for message in completion.messages or ())
        return _put_first(f'"messages":[{messages}]', encode(completion, exclude={"messages"}))
    return encode(completion) if len(completion.text) < LARGE_TEXT else _encode_text_first(completion, "text")


def _encode_text_first(value: BaseModel, field: str) -> str:
    text: str | None = getattr(value, field)
    if text is None:
        return encode(value)
    pieces = (_encode_text(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE))
    return _put_first(f'"{field}":"{"".join(pieces)}"', encode(value, exclude={field}))


def _encode_text(text: str) -> str:
    try:
        return to_json(text).decode()[1:-1]
    except PydanticSerializationError:
        return json.dumps(text)[1:-1]


def _put_first(member: str, rest: str) -> str:
    """`rest` is a JSON object."""
    return f"{{{member}}}" if rest == "{}" else f"{{{member},{rest[1:]}"


def decode(model: type[ModelT], text: str) -> ModelT:
    try:
        return model.model_validate_json(text)
    except ValidationError:
        return model.model_validate(json.loads(text))  # Python's parser alone accepts escaped lone surrogates


def encode_json(value: JsonValue) -> str:
    """A value as JSON, with keys in their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def decode_json(text: str) -> JsonValue:
    value: JsonValue = json.loads(text)
    return value


def match_names(column: ColumnElement[str], patterns: Sequence[str]) -> ColumnElement[bool]:
    """Whether a name is one of these, or begins with one that ends in `*`. Not LIKE, which ignores case in SQLite."""
    return or_(
        *(func.substr(column, 1, len(one) - 1) == one[:-1] if one.endswith("*") else column == one for one in patterns)
    )


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def is_storable(*identifiers: str) -> bool:
    """Whether a text column can hold them; others cannot exist in the store."""
    return all("\x00" not in given and is_encodable(given) for given in identifiers)


def filter_storable(identifiers: Iterable[str]) -> list[str]:
    return [given for given in dict.fromkeys(identifiers) if is_storable(given)]


RowValue = str | int | float | bytes | None
Row = Mapping[str, RowValue]
