"""What a chat judge is told: fixed rules first, then the group as one JSON document with the candidates last."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from app.domain.judging import JudgeRequest, Rubric
from app.judges.reading import encodable
from app.prompts import Template, digest

_FOLDER: Final = Path(__file__).with_name("prompts")
_LISTWISE: Final = Template.read(_FOLDER / "listwise.j2")
_CORRECTION: Final = Template.read(_FOLDER / "correction.j2")

EVIDENCE_ASKED: Final = 3

TEMPLATES_DIGEST: Final = digest([_LISTWISE.digest, _CORRECTION.digest, EVIDENCE_ASKED])


@dataclass(frozen=True)
class Prompt:
    system: str
    user: str


def prompt_for(request: JudgeRequest) -> Prompt:
    """The same bytes for the same request. What all groups of a rubric share comes first, then what all groups of a
    situation share, so that a server can reuse the prefix."""
    document: dict[str, JsonValue] = {
        "rubric": _rubric(request.rubric),
        "context": request.document,
        "references": request.probes.model_dump(mode="json"),
        "candidates": [{"id": candidate.id, "text": candidate.text} for candidate in request.candidates],
    }
    return Prompt(
        system=_LISTWISE.render(quotes=EVIDENCE_ASKED),
        user=encodable(json.dumps(document, ensure_ascii=False, allow_nan=False)),
    )


def correction_for(problems: Sequence[str]) -> str:
    return encodable(_CORRECTION.render(problems=problems))


def _rubric(rubric: Rubric) -> dict[str, JsonValue]:
    """Without weights and caps, which are no business of whoever scores single criteria."""
    return {
        "instructions": rubric.instructions,
        "criteria": [
            {
                "name": criterion.name,
                "description": criterion.description,
                "levels": {str(level): text for level, text in sorted(criterion.anchors.items())},
            }
            for criterion in rubric.criteria
        ],
        "defects": [{"code": rule.code, "description": rule.description} for rule in rubric.defects],
    }
