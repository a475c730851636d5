"""The response format requested from a judge's server."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from app.domain.judging import JudgeRequest
from app.judges.configuration import JsonMode


def build_response_format(mode: JsonMode, request: JudgeRequest | None) -> JsonValue:
    """The `response_format` parameter; None to omit it."""
    if mode == "off":
        return None
    if mode == "object" or request is None:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "verdicts", "strict": True, "schema": _build_answer_schema(request)},
    }


def _build_answer_schema(request: JudgeRequest) -> JsonValue:
    ids: JsonValue = {"type": "string", "enum": [candidate.id for candidate in request.candidates]}
    score: JsonValue = {"type": ["number", "null"]}  # several servers refuse schemas with bounds
    code: JsonValue = {"type": "string"}
    if request.rubric.defects:
        code = {"type": "string", "enum": [rule.code for rule in request.rubric.defects]}
    claims = {} if request.rubric.claims is None else {"claims": _build_array_schema(_build_claim_schema(request))}
    verdict = _build_object_schema(
        {
            "candidate": ids,
            "evidence": _build_array_schema({"type": "string"}),
            **claims,
            "defects": _build_array_schema(_build_object_schema({"code": code, "quote": {"type": "string"}})),
            "scores": _build_object_schema({criterion.name: score for criterion in request.rubric.criteria}),
            "note": {"type": "string"},
        }
    )
    answer: dict[str, JsonValue] = {"verdicts": _build_array_schema(verdict)}
    if len(request.candidates) > 1:
        answer["ranking"] = _build_array_schema(_build_array_schema(ids))
    return _build_object_schema(answer)


def _build_claim_schema(request: JudgeRequest) -> JsonValue:
    sources: JsonValue = {"type": ["string", "null"], "enum": [*(source.id for source in request.sources), None]}
    return _build_object_schema({"quote": {"type": "string"}, "source": sources, "source_quote": {"type": "string"}})


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
