"""Request bodies: bounded in values, JSON read strictly, large ones in a thread and in short calls.

A call into a parser written in C holds the interpreter until it returns, so a body of some megabytes would stop every
other request. A large body is therefore first searched, in windows, for how many values it holds and for numbers that
may overflow. Then the quickest parser reads it, and the route's model validates it. Only what that refuses is read
again, by a slow parser that lets other threads run and says what is wrong.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, Final, cast, get_args

from fastapi import Request
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import SchemaValidator, from_json

from app.domain.faults import explain_faults, format_field_path, quote
from app.domain.values import ModelWords, is_encodable, replace_in_json
from app.http.web.problems import MAX_ERRORS, FieldProblem, RefusedBody, describe_errors
from app.toolkit.texts import run_in_turn

# Before JSON is parsed: how many values it holds, and numbers that are too large.

_BYTES_PER_VALUE: Final = 15
"""The fewest bytes of the limit for each value: 1.7 million by default, which take a tenth of a second to parse and
less to validate. Token ids with their log-probabilities are about as long."""
_COSTS: Final = {b",": 1, b"[": 3, b"{": 3, b":": 12}
"""What the values of a body cost, about: a number is 1, a list or an object 3, a key 12, and a text
with escapes 1 more."""
WINDOW: Final = 256 * 1024
"""Bytes that are counted, or characters of a list that are parsed, in one call."""
_NUMBERS: Final = bytes(ord("0" if chr(byte).isdecimal() else "e" if chr(byte) in "eE" else " ") for byte in range(256))
_HUGE_NUMBER: Final = b"0" * 1000
"""Digits, as zeros. Writing thousands of such numbers takes half a second. A pattern takes 16 times as long to find
none."""
_LONG_NUMBER: Final = b"0" * 300
_LONG_EXPONENT: Final = b"e000"
"""Only numbers with one of these can be larger than the largest float, 1.8e308."""
_TOO_MANY_DIGITS: Final = "The body holds a number with too many digits."


def require_few_values(body: bytes, most: int) -> bool:
    """Whether every number fits a float for sure: the quick parser makes infinities of others. RefusedBody for too many
    values: Python can do nothing else while one is parsed or validated in one call, so that call must be short."""
    cost, all_fit, before = 0, True, b""
    for outside, escaped in _split_texts_off(body):
        numbers = before + outside.translate(_NUMBERS, b"+")
        before = numbers[-len(_HUGE_NUMBER) :]
        if _HUGE_NUMBER in numbers:
            raise RefusedBody(400, _TOO_MANY_DIGITS)
        all_fit = all_fit and not _may_overflow(numbers)
        cost += escaped + sum(outside.count(mark) * each for mark, each in _COSTS.items())
        if cost > most:
            detail = f"The body holds more than {most} values, counting a key as 12 and a list as 3"
            raise RefusedBody(413, f"{detail} (see `max_body_bytes`). Send it in several requests.")
    return all_fit


def _may_overflow(numbers: bytes) -> bool:
    """To look for exponents from the end takes a third of the time, since few bytes are their first and most their
    last."""
    return numbers.rfind(_LONG_EXPONENT) >= 0 or _LONG_NUMBER in numbers


def _split_texts_off(body: bytes) -> Iterator[tuple[bytes, int]]:
    """Windows of what is outside of texts, each with about how many of its texts have escapes."""
    quoted, start = 0, 0
    while start < len(body):
        window = body[start : start + WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2:  # no escape is cut in two
            window = body[start : start + WINDOW + 1]
        start += len(window)
        parts = window.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[quoted::2]), min(window.count(b"\\"), len(parts) // 2)
        quoted = (quoted + len(parts) - 1) % 2


# Parsing.

DEFAULT_MAX_BYTES = 24 * 1024 * 1024
MOST_VALUES: Final = DEFAULT_MAX_BYTES // _BYTES_PER_VALUE
"""Of a body, unless the settings allow larger bodies."""
LARGE_BYTES: Final = 64 * 1024
"""From here on a body is read in a thread."""
MANY_ERRORS_BYTES: Final = 16 * 1024
"""From here on a body is not searched for all of its errors."""
_LONG_LIST: Final = 1024
"""Characters of a list from which on it is parsed in windows."""
_SEQUENCES: Final = frozenset({"list", "tuple", "set", "frozenset"})
"""Core schemas of lists, which can stop at their first error."""

_Location = tuple[str | int, ...]

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _NotFinite(ValueError):
    pass


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NotFinite(digits[:20])
    return number


def _refuse_constant(name: str) -> float:
    raise _NotFinite(name)


class _Interruptible(json.JSONDecoder):
    """Slow, but other threads can run meanwhile: the library's own parser in Python instead of that in C."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.parse_object = JSONObject
        self.parse_array = JSONArray
        self.scan_once = py_make_scanner(self)


class _Piecewise(_Interruptible):
    """Long lists of numbers go to the quickest parser, a window at a time: all of them in one call let nobody in."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.parse_array = _parse_array
        self.scan_once = py_make_scanner(self)


def _parse_array(text_and_start: tuple[str, int], scan_once: Any) -> tuple[list[Any], int]:
    text, start = text_and_start
    end = text.find("]", start)
    if end - start < _LONG_LIST or any(text.find(mark, start, end) >= 0 for mark in '"[{'):
        return cast("tuple[list[Any], int]", JSONArray(text_and_start, scan_once))
    numbers: list[Any] = []
    while start <= end:
        stop = end if end - start <= WINDOW else text.rindex(",", start, start + WINDOW)
        some = from_json(f"[{text[start:stop]}]", allow_inf_nan=False)
        if not some:  # a list of nothing is valid by itself, `[1,,2]` is not
            raise ValueError("a comma without a number")
        numbers += some
        start = stop + 1
    return numbers, end + 1


_STRICT = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_refuse_constant)
_INTERRUPTIBLE = _Interruptible(parse_float=_parse_finite, parse_constant=_refuse_constant)
_PIECEWISE = _Piecewise(parse_float=_parse_finite, parse_constant=_refuse_constant)


def may_hold_surrogates(body: bytes) -> bool:
    """Pairs count too, which are characters."""
    return _SURROGATE.search(body) is not None


def parse_json(body: bytes, model: type[BaseModel] | None = None) -> JsonValue:
    """Parses JSON in UTF-8. Raises RefusedBody: 400 when the body is not JSON; 422 with the fields when it holds NaN,
    an infinity (`1e999` too) or a lone surrogate outside of what `model` marks as `ModelWords`."""
    try:
        text = body.decode("utf-8")
        value = _load_strictly(text, _STRICT if len(body) < LARGE_BYTES else _INTERRUPTIBLE)
    except json.JSONDecodeError as error:
        fault = f"{error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        raise RefusedBody(400, f"The body is not JSON: {fault}.") from None
    except UnicodeDecodeError as error:
        raise RefusedBody(400, f"The body is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise _refuse_depth() from None
    except ValueError:  # an integer of more digits than Python reads
        raise RefusedBody(400, _TOO_MANY_DIGITS) from None
    if len(body) < LARGE_BYTES and not may_hold_surrogates(body):
        return value
    if (faults := _collect_faults(value)) and model is not None:
        try:
            value = _mend_words(value, (model,))
        except RecursionError:
            raise _refuse_depth() from None
        faults = _collect_faults(value)
    if faults:
        raise _build_refusal(faults)
    return value


def _mend_words(value: JsonValue, models: Sequence[type[BaseModel]]) -> JsonValue:
    """The value, which is of one of these models or lists of them, with U+FFFD for lone surrogates in a model's words:
    one completion must not cost the whole request."""
    if isinstance(value, list):
        return [_mend_words(item, models) for item in value]
    if not isinstance(value, dict):
        return value
    places = {name: place for model in models for name, place in _list_places(model).items()}
    return {
        name: item
        if (place := places.get(name)) is None
        else replace_in_json(item)
        if isinstance(place, ModelWords)
        else _mend_words(item, place)
        for name, item in value.items()
    }


@cache
def _list_places(model: type[BaseModel]) -> Mapping[str, ModelWords | tuple[type[BaseModel], ...]]:
    """By the names of its fields: that one holds a model's words, or which models it holds."""
    places: dict[str, ModelWords | tuple[type[BaseModel], ...]] = {}
    for name, field in model.model_fields.items():
        words = next((mark for mark in field.metadata if isinstance(mark, ModelWords)), None)
        inner = tuple(_find_models(field.annotation))
        if words is not None:
            places |= dict.fromkeys(filter(None, (field.alias or name, words.also)), words)
        elif inner:
            places[field.alias or name] = inner
    return places


def _find_models(kind: object) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _find_models(part)


def _load_strictly(text: str, decoder: json.JSONDecoder) -> JsonValue:
    try:
        value: JsonValue = decoder.decode(text)
    except _NotFinite:
        raise _build_refusal(_collect_faults(_Interruptible().decode(text))) from None
    return value


def _refuse_depth() -> RefusedBody:
    return RefusedBody(400, "The body is nested too deeply.")


def _build_refusal(faults: tuple[FieldProblem, ...]) -> RefusedBody:
    return RefusedBody(422, f"`{faults[0].field}`: {faults[0].message}", faults)


def _collect_faults(value: JsonValue) -> tuple[FieldProblem, ...]:
    faults = islice(_find_faults(value), MAX_ERRORS)
    return tuple(FieldProblem(field=format_field_path(location), message=message) for location, message in faults)


def _find_faults(root: JsonValue) -> Iterator[tuple[_Location, str]]:
    # A stack hands back the last item first: reversed, faults come in the order of the body.
    waiting: list[tuple[_Location, JsonValue]] = [(("body",), root)]
    while waiting:
        location, value = waiting.pop()
        if isinstance(value, float):
            if not math.isfinite(value):
                yield location, f"{quote(value)} was given; wanted is a finite number"
        elif isinstance(value, str):
            if not is_encodable(value):
                yield location, "wanted is text without lone surrogates"
        elif isinstance(value, list):
            waiting.extend(((*location, index), item) for index, item in reversed(list(enumerate(value))))
        elif isinstance(value, dict):
            if not all(map(is_encodable, value)):
                yield location, "a name in it has lone surrogates; wanted is text without"
            waiting.extend(((*location, key), item) for key, item in reversed(value.items()))


class JsonRequest(Request):
    """A request whose JSON is parsed by `parse_json` and, where its model is known, validated here: FastAPI would do it
    on the event loop and collect every error."""

    reader: "BodyReader | None" = None

    async def json(self) -> JsonValue | BaseModel:
        if not hasattr(self, "_parsed"):
            body = await self.body()
            small = len(body) < LARGE_BYTES
            self._parsed = self._read(body) if small else await run_in_turn("bodies", self._read_large, body)
        return self._parsed

    def _read(self, body: bytes) -> JsonValue | BaseModel:
        return parse_json(body) if self.reader is None else self.reader.read(body)

    def _read_large(self, body: bytes) -> JsonValue | BaseModel:
        limit = int(self.scope.get("state", {}).get("max_body_bytes", DEFAULT_MAX_BYTES))
        has_quick_numbers = require_few_values(body, max(MOST_VALUES, limit // _BYTES_PER_VALUE))
        if self.reader is not None and has_quick_numbers and (model := self.reader.read_quickly(body)) is not None:
            return model
        return self._read(body)


class BodyReader:
    """Parses and validates bodies of one model."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    @cached_property
    def _strict(self) -> SchemaValidator:
        """Built when it is first needed, because most routes never get a large body."""
        self._model.model_rebuild()  # it may put that off too
        # Prebuilt validators of inner models would collect every error again.
        return SchemaValidator(stop_at_first_error(self._model.__pydantic_core_schema__), _use_prebuilt=False)

    def read(self, body: bytes) -> BaseModel:
        """Raises RefusedBody. Of a list in a large body only the first wrong item is named."""
        validator = self._model.__pydantic_validator__ if len(body) < MANY_ERRORS_BYTES else self._strict
        try:
            return cast(BaseModel, validator.validate_python(parse_json(body, self._model), from_attributes=True))
        except ValidationError as error:
            faults = explain_faults(error, self._model, base=("body",))
            raise RefusedBody(422, *describe_errors(faults)) from None

    def read_quickly(self, body: bytes) -> BaseModel | None:
        """A quarter of the time of Python's parser; None for what has to be looked at again to say what is wrong. No
        number may be too large for a float."""
        try:
            return cast(BaseModel, self._strict.validate_python(parse_quickly(body)))
        except (ValueError, RecursionError):
            return None


def parse_quickly(body: bytes) -> JsonValue:
    """ValueError or RecursionError for what `parse_json` has to look at. `1e999` becomes an infinity."""
    # Token ids with their log-probabilities are lists of millions of numbers, too long for one call.
    if b'"token_ids"' in body and not may_hold_surrogates(body):
        return cast(JsonValue, _PIECEWISE.decode(body.decode()))
    return cast(JsonValue, from_json(body, allow_inf_nan=False, cache_strings="none"))


def stop_at_first_error(schema: Any) -> Any:
    """A copy of a core schema whose lists stop at their first wrong item."""
    if isinstance(schema, list):
        return [stop_at_first_error(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {key: stop_at_first_error(part) for key, part in schema.items()}
    kind = copied.get("type")  # among the fields of a model it may be a field
    return copied | {"fail_fast": True} if isinstance(kind, str) and kind in _SEQUENCES else copied
