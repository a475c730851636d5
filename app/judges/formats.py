"""The response format requested from a judge's server."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.judging import JudgeRequest
from app.judges.configuration import JsonMode, VerdictForm
from app.judges.presentation_order import name_places


def build_response_format(mode: JsonMode, request: JudgeRequest | None, form: VerdictForm = "short") -> JsonValue:
    """The `response_format` parameter; None to omit it."""
    if mode == "off":
        return None
    if mode == "object" or request is None:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "verdicts", "strict": True, "schema": _SCHEMAS[form](request)},
    }


def _build_short_schema(request: JudgeRequest) -> JsonValue:
    """The same for every group of a size, so that servers compile one grammar and keep it."""
    places = name_places(len(request.candidates))
    letter: JsonValue = {"type": "string", "enum": [*places]}
    by_letter = _build_object_schema(dict.fromkeys(places, _NUMBER))
    scores: JsonValue = {"anyOf": [by_letter, {"type": "null"}]}
    defect: dict[str, JsonValue] = {
        "candidate": letter,
        "code": _build_code_schema(request),
        "quote": {"type": "string"},
    }
    answer: dict[str, JsonValue] = {
        "defects": _build_array_schema(_build_object_schema(defect)),
        "scores": _build_object_schema({criterion.name: scores for criterion in request.rubric.criteria}),
    }
    if request.rubric.claims is not None:
        answer = {"claims": _build_array_schema(_build_object_schema({"candidate": letter, **_CLAIM_FIELDS})), **answer}
    if len(places) > 1:
        answer["ranking"] = _build_array_schema(_build_array_schema(letter))
    answer["notes"] = _build_object_schema({place: {"type": "string"} for place in places})
    return _build_object_schema(answer)


def _build_code_schema(request: JudgeRequest) -> JsonValue:
    codes: list[JsonValue] = [rule.code for rule in request.rubric.defects]
    return {"type": "string", "enum": codes} if codes else {"type": "string"}


def _build_long_schema(request: JudgeRequest) -> JsonValue:
    """As the short one, the same for every group of a size."""
    letters: JsonValue = {"type": "string", "enum": [*name_places(len(request.candidates))]}
    score: JsonValue = {"type": ["number", "null"]}  # several servers refuse schemas with bounds
    code = _build_code_schema(request)
    claim = _build_object_schema(_CLAIM_FIELDS)
    claims = {} if request.rubric.claims is None else {"claims": _build_array_schema(claim)}
    verdict = _build_object_schema(
        {
            "candidate": letters,
            "evidence": _build_array_schema({"type": "string"}),
            **claims,
            "defects": _build_array_schema(_build_object_schema({"code": code, "quote": {"type": "string"}})),
            "scores": _build_object_schema({criterion.name: score for criterion in request.rubric.criteria}),
            "note": {"type": "string"},
        }
    )
    answer: dict[str, JsonValue] = {"verdicts": _build_array_schema(verdict)}
    if len(request.candidates) > 1:
        answer["ranking"] = _build_array_schema(_build_array_schema(letters))
    return _build_object_schema(answer)


def _build_object_schema(properties: Mapping[str, JsonValue]) -> JsonValue:
    required: Sequence[JsonValue] = list(properties)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _build_array_schema(items: JsonValue) -> JsonValue:
    return {"type": "array", "items": items}


_NUMBER: Final[JsonValue] = {"type": "number"}
_CLAIM_FIELDS: Final[Mapping[str, JsonValue]] = {
    "quote": {"type": "string"},
    "source": {"type": ["string", "null"]},
    "source_quote": {"type": "string"},
}
_SCHEMAS: Final[Mapping[VerdictForm, Callable[[JudgeRequest], JsonValue]]] = {
    "long": _build_long_schema,
    "short": _build_short_schema,
}
