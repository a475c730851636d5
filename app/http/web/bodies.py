"""Request bodies: bounded in size, compressed only where the reader inflates in bounds, JSON read strictly."""

import json
import math
import re
from collections.abc import Callable, Coroutine, Iterator

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, JsonValue
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.suggestions import suggest
from app.domain.values import is_encodable
from app.http.web.problems import MAX_ERRORS, FieldProblem, RefusedBody, build_problem_response, format_field_path

DEFAULT_MAX_BYTES = 64 * 1024 * 1024


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
        return f"The body is larger than {self._max_bytes} bytes."


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


_STRICT = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_refuse_constant)


def parse_json(body: bytes) -> JsonValue:
    """Parses JSON in UTF-8. Raises RefusedBody: 400 when the body is not JSON; 422 with the fields when it holds NaN,
    an infinity (`1e999` too) or a lone surrogate."""
    try:
        text = body.decode("utf-8")
        value = _load_strictly(text)
    except json.JSONDecodeError as error:
        fault = f"{error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        raise RefusedBody(400, f"The body is not JSON: {fault}.") from None
    except UnicodeDecodeError as error:
        raise RefusedBody(400, f"The body is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise RefusedBody(400, "The body is nested too deeply.") from None
    except ValueError:  # an integer of more digits than Python reads
        raise RefusedBody(400, "The body holds a number with too many digits.") from None
    if _SURROGATE.search(body) and (faults := _collect_faults(value)):
        raise _build_refusal(faults)
    return value


def _load_strictly(text: str) -> JsonValue:
    try:
        value: JsonValue = _STRICT.decode(text)
    except _NotFinite:
        raise _build_refusal(_collect_faults(json.loads(text))) from None
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
    """A request whose JSON is parsed by `parse`."""

    async def json(self) -> JsonValue:
        if not hasattr(self, "_parsed"):
            self._parsed = parse_json(await self.body())
        return self._parsed


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

        async def read_strictly(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return read_strictly
