"""Base types of all models: frozen, no unknown fields, finite numbers, encodable text."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, JsonValue
from pydantic_core import CoreSchema

from app.domain.field_docstrings import describe_fields

Split = Literal["train", "test"]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""An identifier that is safe in a path, a URL and a label."""

Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A strict number: `true` and `"1"` are rejected."""
WholeNumber = Annotated[int, Field(strict=True)]
"""A strict integer: `true`, `1.0` and `"1"` are rejected."""

MAX_JSON_DEPTH = 32


def _validate_json(value: JsonValue, depth: int, path: str) -> None:
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels at {path or 'the root'}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"not a finite number at {path or 'the root'}")
    if isinstance(value, str):
        require_encodable(value)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _validate_json(item, depth + 1, f"{path}[{position}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            require_encodable(key)
            _validate_json(item, depth + 1, f"{path}.{key}")


def utc_now() -> datetime:
    """The present, with its zone."""
    return datetime.now(UTC)


def is_absent(value: object) -> bool:
    """For `exclude_if`: what was not given is left out, so that digests of what is older stay the same."""
    return value is None or value == ()


def is_encodable(text: str) -> bool:
    """Whether the text has no lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_encodable(text: str) -> str:
    """`text` itself; ValueError for lone surrogates."""
    if not is_encodable(text):
        raise ValueError("a lone surrogate is not text")
    return text


def _require_finite_json(value: JsonValue) -> JsonValue:
    _validate_json(value, 0, "")
    return value


FiniteJson = Annotated[JsonValue, AfterValidator(_require_finite_json)]
"""JSON without NaN, infinities, lone surrogates or depth beyond MAX_JSON_DEPTH."""


ValueT = TypeVar("ValueT")
_make_object: Final = object.__new__
_set_values, _set_given, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
"""The parts of a model, which nothing looks up by their names."""


class SameObject(Generic[ValueT]):
    """The key of a cache by identity, for what is never changed and takes long to compare. It keeps its object, so that
    no other gets the same id."""

    __slots__ = ("value",)

    def __init__(self, value: ValueT) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Described(BaseModel):
    """The docstrings below its fields describe them in its JSON Schema. Validators are built at first use: those of
    all models took a fifth of the start."""

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, JsonValue]:
        """They are read here, since reading all of them when the classes are made took a fifth of the start."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in describe_fields(cls).items():
            field = cls.model_fields.get(name)
            shown = properties.get(name if field is None else field.alias or name)
            if shown is not None:
                shown.setdefault("description", text)
        return schema


class Frozen(Described):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic does it, in a third of the time. Most of what a score passes through is such copies."""
        if deep or update is None or self.__pydantic_extra__ is not None or self.__private_attributes__:
            return super().model_copy(update=update, deep=deep)
        copied = _make_object(type(self))
        _set_values(copied, {**self.__dict__, **update})
        _set_given(copied, self.__pydantic_fields_set__ | update.keys())
        _set_extra(copied, None)
        _set_private(copied, None)
        return copied

    @classmethod
    def build_trusted(cls, **values: Any) -> Self:
        """With a value for every field, in their order, each made or checked by us before: to validate them again takes
        most of the time of a small model."""
        made = _make_object(cls)
        _set_values(made, values)
        _set_given(made, _list_field_names(cls))
        _set_extra(made, None)
        _set_private(made, None)
        return made


@cache
def _list_field_names(model: type[BaseModel]) -> set[str]:
    """One set for all that have every field: what is frozen never adds to it."""
    return set(model.model_fields)


class NoParams(Frozen):
    """The environment takes no parameters."""
