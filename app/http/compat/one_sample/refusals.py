"""Errors as one flat JSON object that trainers can log; none of them has its own error format."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Final, cast

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue
from starlette.exceptions import HTTPException

from app.domain.errors import GatewayError, Unavailable
from app.domain.values import Frozen
from app.http.web.bodies import JsonRequest
from app.http.web.direct_routes import DirectInputs, DirectRoute
from app.http.web.openapi import document_problems
from app.http.web.problems import MAX_DETAIL, RefusedBody, format_field_path, make_printable

_CODES: Final = {400: "bad_request", 408: "request_timeout", 413: "too_large"}


class RewardRefusal(Frozen):
    """Why there is no reward."""

    error: str = Field(examples=["task_… was never handed out here"])
    code: str = Field(examples=["not_found"])
    """A fixed code for programs."""
    field: str | None = Field(examples=["labels[0].task_id"])


class RefusingRoute(DirectRoute):
    """Parses JSON strictly and answers every error with a `Refusal`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()

        async def handle_or_refuse(request: Request) -> Response:
            try:
                return cast(Response, await handle(request))
            except _REFUSED as error:
                return _refuse(error)

        return handle_or_refuse

    async def answer(
        self, request: JsonRequest, inputs: DirectInputs, query: Mapping[str, BaseModel]
    ) -> Response | BaseModel:
        try:
            return await super().answer(request, inputs, query)
        except _REFUSED as error:
            return _refuse(error)


_REFUSED: Final = (GatewayError, RequestValidationError, HTTPException)


def _refuse(error: GatewayError | RequestValidationError | HTTPException) -> JSONResponse:
    if isinstance(error, GatewayError):
        after = error.retry_after if isinstance(error, Unavailable) else None
        return build_refusal(error.status, RewardRefusal(error=error.detail, code=error.code, field=error.field), after)
    if isinstance(error, RequestValidationError):
        return _refuse_invalid(error)
    named = error.errors[0].field if isinstance(error, RefusedBody) and error.errors else None
    code = _CODES.get(error.status_code, "invalid_request")
    refusal = RewardRefusal(error=str(error.detail), code=code, field=named and named.removeprefix("body."))
    return build_refusal(error.status_code, refusal)


def document_refusals() -> dict[int | str, dict[str, object]]:
    """The `responses=` of a reward endpoint in OpenAPI. Errors of the middleware are problems as everywhere."""
    told = {
        400: "The body is not JSON.",
        404: "No such environment or task.",
        409: "The run is strict, and its scoring has changed since it began.",
        422: "The query or the body is invalid.",
        503: "No score, or not yet; the same request can be retried.",
    }
    own: dict[int | str, dict[str, object]] = {
        status: {"model": RewardRefusal, "description": meaning} for status, meaning in told.items()
    }
    return own | document_problems(401, 408, 413, 415)


def build_refusal(
    status: int, refusal: RewardRefusal, retry_after: int | None = None, beside: Mapping[str, JsonValue] | None = None
) -> JSONResponse:
    """`beside` has the keys that the trainer expects in every response."""
    content = {
        **(beside or {}),
        "error": make_printable(refusal.error, MAX_DETAIL),
        "code": refusal.code,
        "field": None if refusal.field is None else make_printable(refusal.field),
    }
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return JSONResponse(content, status_code=status, headers=headers)


def _refuse_invalid(error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    field = format_field_path([part for part in first["loc"] if part != "body"]) or None
    if isinstance(error.body, bytes):  # FastAPI parses a body exactly when its type says JSON
        refusal = RewardRefusal(
            error="send JSON with Content-Type: application/json", code="unsupported_media_type", field=None
        )
        return build_refusal(415, refusal)
    return build_refusal(422, RewardRefusal(error=str(first["msg"]), code="invalid_request", field=field))
