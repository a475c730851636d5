"""Request bodies: bounded in size and values, JSON read strictly, large ones in a thread in short calls."""

import asyncio
import json
import math
import re
from collections.abc import Callable, Coroutine, Iterator
from functools import cached_property
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, Final, cast

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import SchemaValidator, from_json
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.suggestions import suggest
from app.domain.values import is_encodable
from app.http.web.problems import (
    MAX_ERRORS,
    FieldProblem,
    RefusedBody,
    build_problem_response,
    describe_faults,
    format_field_path,
)

DEFAULT_MAX_BYTES = 24 * 1024 * 1024
LARGE_BYTES: Final = 64 * 1024
"""From here on a body is read in a thread."""
MANY_ERRORS_BYTES: Final = 16 * 1024
"""From here on a body is not searched for all of its errors."""
BYTES_PER_VALUE: Final = 15
"""The fewest bytes of the limit for each value: 1.7 million by default, which take a tenth of a second to parse and
less to validate. Token ids with their log-probabilities are about as long."""
_COSTS: Final = {b",": 1, b"[": 3, b"{": 3, b":": 12}
"""What the values of a body cost, about: a number is 1, a list or an object 3, a key 12."""
_MARKS: Final = re.compile(rb'\\.|[",:\[{]', re.DOTALL)
_WINDOW: Final = 256 * 1024
"""Bytes that are searched in one call."""
_SEQUENCES: Final = frozenset({"list", "tuple", "set", "frozenset"})


class BodyLimits:
    """Answers 413 to bodies over `max_bytes`, announced or streamed. Answers 415 to any `Content-Encoding`, because a
    few kilobytes can expand to gigabytes; paths that start with `inflating` decompress gzip themselves, within the
    limit."""

    def __init__(self, app: ASGIApp, max_bytes: int = DEFAULT_MAX_BYTES, inflating: tuple[str, ...] = ()) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._inflating = inflating

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity" and not (encoding == "gzip" and scope["path"].startswith(self._inflating)):
            detail = "Send the body uncompressed: Content-Encoding is not accepted."
            await build_problem_response(scope, 415, detail, headers={"Accept-Encoding": "identity"})(
                scope, receive, send
            )
            return
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._max_bytes:
            await build_problem_response(scope, 413, self._detail)(scope, receive, send)
            return
        scope.setdefault("state", {})["max_body_bytes"] = self._max_bytes
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise RefusedBody(413, self._detail)
            return message

        await self._app(scope, receive_counted, send)

    @property
    def _detail(self) -> str:
        return f"The body is larger than {self._max_bytes} bytes (the setting `max_body_bytes`)."


Location = tuple[str | int, ...]

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


_STRICT = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_refuse_constant)
_INTERRUPTIBLE = _Interruptible(parse_float=_parse_finite, parse_constant=_refuse_constant)


def parse_json(body: bytes) -> JsonValue:
    """Parses JSON in UTF-8. Raises RefusedBody: 400 when the body is not JSON; 422 with the fields when it holds NaN,
    an infinity (`1e999` too) or a lone surrogate."""
    try:
        text = body.decode("utf-8")
        value = _load_strictly(text, _STRICT if len(body) < LARGE_BYTES else _INTERRUPTIBLE)
    except json.JSONDecodeError as error:
        fault = f"{error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        raise RefusedBody(400, f"The body is not JSON: {fault}.") from None
    except UnicodeDecodeError as error:
        raise RefusedBody(400, f"The body is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise RefusedBody(400, "The body is nested too deeply.") from None
    except ValueError:  # an integer of more digits than Python reads
        raise RefusedBody(400, "The body holds a number with too many digits.") from None
    if (len(body) >= LARGE_BYTES or _SURROGATE.search(body)) and (faults := _collect_faults(value)):
        raise _build_refusal(faults)
    return value


def _load_strictly(text: str, decoder: json.JSONDecoder) -> JsonValue:
    try:
        value: JsonValue = decoder.decode(text)
    except _NotFinite:
        raise _build_refusal(_collect_faults(_Interruptible().decode(text))) from None
    return value


def _build_refusal(faults: tuple[FieldProblem, ...]) -> RefusedBody:
    return RefusedBody(422, f"{faults[0].field}: {faults[0].message}", faults)


def _collect_faults(value: JsonValue) -> tuple[FieldProblem, ...]:
    found: list[FieldProblem] = []
    for location, message in _find_faults(value):
        found.append(FieldProblem(field=format_field_path(location), message=message))
        if len(found) == MAX_ERRORS:
            break
    return tuple(found)


def _find_faults(root: JsonValue) -> Iterator[tuple[Location, str]]:
    waiting: list[tuple[Location, JsonValue]] = [(("body",), root)]
    while waiting:
        location, value = waiting.pop()
        if isinstance(value, float):
            if not math.isfinite(value):
                yield location, "Input should be a finite number"
        elif isinstance(value, str):
            if not is_encodable(value):
                yield location, "Input should be text without lone surrogates"
        elif isinstance(value, list):
            waiting.extend(((*location, place), item) for place, item in reversed(list(enumerate(value))))
        elif isinstance(value, dict):
            if not all(map(is_encodable, value)):
                yield location, "Keys should be text without lone surrogates"
            waiting.extend(((*location, key), item) for key, item in reversed(value.items()))


class JsonRequest(Request):
    """A request whose JSON is parsed by `parse_json` and, where its model is known, validated here: FastAPI would do it
    on the event loop and collect every error."""

    reader: "BodyReader | None" = None

    async def json(self) -> JsonValue | BaseModel:
        if not hasattr(self, "_parsed"):
            body = await self.body()
            read = parse_json if self.reader is None else self.reader.read
            small = len(body) < LARGE_BYTES
            self._parsed = read(body) if small else await asyncio.to_thread(self._read_large, read, body)
        return self._parsed

    def _read_large(self, read: Callable[[bytes], JsonValue | BaseModel], body: bytes) -> JsonValue | BaseModel:
        limit = int(self.scope.get("state", {}).get("max_body_bytes", DEFAULT_MAX_BYTES))
        _require_few_values(body, max(limit, DEFAULT_MAX_BYTES) // BYTES_PER_VALUE)
        return read(body)


def _require_few_values(body: bytes, most: int) -> None:
    """Python can do nothing else while a value is parsed or validated in one call, so that call must be short."""
    if sum(body.count(mark) * cost for mark, cost in _COSTS.items()) <= most:
        return
    if _count_cost(body) > most:
        detail = f"The body holds more than {most} values, counting a key as 12 and a list as 3 (see `max_body_bytes`)."
        raise RefusedBody(413, f"{detail} Send it in several requests.")


def _count_cost(body: bytes) -> int:
    """The cost of what is outside of texts."""
    cost, quoted, start = 0, False, 0
    while start < len(body):
        end = min(start + _WINDOW, len(body))
        while body[end - 1 : end] == b"\\" and end < len(body):  # no escape is cut in two
            end += 1
        for match in _MARKS.finditer(body, start, end):
            if match[0] == b'"':
                quoted = not quoted
            elif not quoted:
                cost += _COSTS.get(match[0], 0)
        start = end
    return cost


class BodyReader:
    """Parses and validates bodies of one model."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    @cached_property
    def _strict(self) -> SchemaValidator:
        """Built when it is first needed, because most routes never get a large body."""
        return SchemaValidator(stop_at_first_error(self._model.__pydantic_core_schema__), _use_prebuilt=False)

    def read(self, body: bytes) -> BaseModel:
        """Raises RefusedBody. Of a list in a large body only the first wrong item is named."""
        validator = self._model.__pydantic_validator__ if len(body) < MANY_ERRORS_BYTES else self._strict
        if len(body) >= LARGE_BYTES and (made := self._read_quickly(body)) is not None:
            return made
        try:
            return cast(BaseModel, validator.validate_python(parse_json(body), from_attributes=True))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            placed = [{**item, "loc": ("body", *item["loc"])} for item in found]
            raise RefusedBody(422, *describe_faults(placed)) from None

    def _read_quickly(self, body: bytes) -> BaseModel | None:
        """A quarter of the time of Python's parser; None for what has to be looked at again to say what is wrong."""
        try:
            value = from_json(body, allow_inf_nan=False, cache_strings="none")
            return cast(BaseModel, self._strict.validate_python(value))
        except ValueError:
            return None


def stop_at_first_error(schema: Any) -> Any:
    """A copy of a core schema whose lists stop at their first wrong item."""
    if isinstance(schema, list):
        return [stop_at_first_error(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {key: stop_at_first_error(part) for key, part in schema.items()}
    kind = copied.get("type")  # among the fields of a model it may be a field
    return copied | {"fail_fast": True} if isinstance(kind, str) and kind in _SEQUENCES else copied


class ApiRoute(APIRoute):
    """Route class of every API router: refuses query parameters that the route does not know."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()
        known = frozenset(_list_query_parameters(self.dependant))

        async def refuse_unknown_parameters(request: Request) -> Response:
            unknown = [name for name in request.query_params if name not in known]
            if unknown:
                raise RequestValidationError(
                    [
                        {
                            "type": "extra_forbidden",
                            "loc": ("query", name),
                            "msg": f"there is no such parameter{suggest(name, known)}",
                        }
                        for name in unknown[:MAX_ERRORS]
                    ]
                )
            return await handle(request)

        return refuse_unknown_parameters


def _list_query_parameters(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from (one.alias or name for name, one in annotation.model_fields.items())
        else:
            yield field.alias
    for one in dependant.dependencies:
        yield from _list_query_parameters(one)


class JsonRoute(ApiRoute):
    """Route class for every router that accepts JSON: `APIRouter(route_class=JsonRoute)`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()
        reader = self.create_reader()

        async def read_strictly(request: Request) -> Response:
            strict = JsonRequest(request.scope, request.receive)
            strict.reader = reader
            return await handle(strict)

        return read_strictly

    def create_reader(self) -> BodyReader | None:
        """None for routes without a body, or with one that is no model."""
        model = None if self.body_field is None else self.body_field.field_info.annotation
        return BodyReader(model) if isinstance(model, type) and issubclass(model, BaseModel) else None
