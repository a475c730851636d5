"""Prompts of chat judges: fixed rules first, then the group as one JSON document with the candidates last."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, get_args

from pydantic import JsonValue

from app.domain.digests import digest
from app.domain.judging import Candidate, JudgeRequest, Mode, Probes, Rubric
from app.judges.presentation_order import assign_letters
from app.judges.text_normalisation import replace_surrogates
from app.toolkit.templates import Template

_FOLDER: Final = Path(__file__).with_name("prompts")
_MODE_TEMPLATES: Final[Mapping[Mode, Template]] = {
    mode: Template.read(_FOLDER / f"{mode}.j2") for mode in get_args(Mode)
}
_RULES: Final = Template.read(_FOLDER / "rules.j2")
_VERDICT: Final = Template.read(_FOLDER / "verdict.j2")
_CORRECTION: Final = Template.read(_FOLDER / "correction.j2")

EVIDENCE_ASKED: Final = 3
_SCALE: Final[Mapping[Mode, str]] = {
    "listwise": "Read all candidates before you score any. Use the whole scale, and give equal scores only to equal "
    "replies.",
    "pairwise": "Read both candidates before you score one. Use the whole scale, and give equal scores only to equal "
    "replies.",
    "pointwise": "Use the whole scale: of many replies to such a situation few are as good or as bad as its ends.",
}

TEMPLATES_DIGEST: Final = digest(
    [
        {mode: template.digest for mode, template in _MODE_TEMPLATES.items()},
        _RULES.digest,
        _VERDICT.digest,
        _CORRECTION.digest,
        dict(_SCALE),
        EVIDENCE_ASKED,
    ]
)


@dataclass(frozen=True)
class JudgePrompt:
    system: str
    user: str


@dataclass(frozen=True)
class JudgeQuestion:
    """A request with its rendered prompt and its cache key."""

    request: JudgeRequest
    prompt: JudgePrompt
    prompt_text: str
    """The first prompt as it is stored."""
    prompt_digest: str
    """Digest of the prompt and the judge."""
    cache_key: str
    """Cache key, equal for interchangeable questions."""


def build_prompt(request: JudgeRequest) -> JudgePrompt:
    """Deterministic. Parts shared by all groups of a rubric come first, then parts shared by a situation, so that
    servers can cache the prefix."""
    lettered = zip(assign_letters(request), request.candidates, strict=True)
    candidates = json.dumps([_serialise_candidate(letter, each) for letter, each in lettered], ensure_ascii=False)
    prefix = _build_prefix(_PrefixKey(request.rubric, request.document, request.probes))
    claims = request.rubric.claims
    criterion = "" if claims is None else claims.criterion
    return JudgePrompt(
        system=_render_rules(request.mode, criterion),
        user=f'{prefix}, "candidates": {replace_surrogates(candidates)}}}',
    )


@dataclass(frozen=True, eq=False)
class _PrefixKey:
    """A cache key that compares parts by identity: the judgements of a group share them, and encoding them once saves
    most of the work of a prompt."""

    rubric: Rubric
    document: dict[str, JsonValue]
    probes: Probes

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _PrefixKey)
            and self.rubric is other.rubric
            and self.document is other.document
            and self.probes is other.probes
        )

    def __hash__(self) -> int:
        return hash((id(self.rubric), id(self.document), id(self.probes)))


@lru_cache(maxsize=256)
def _build_prefix(situation: _PrefixKey) -> str:
    """The JSON document up to the candidates."""
    document: dict[str, JsonValue] = {
        "rubric": _serialise_rubric(situation.rubric),
        "context": situation.document,
        "references": situation.probes.model_dump(mode="json"),
    }
    return replace_surrogates(json.dumps(document, ensure_ascii=False, allow_nan=False)).removesuffix("}")


def _serialise_candidate(letter: str, candidate: Candidate) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = {"id": letter, "text": candidate.text}
    return {**shown, "hints": list(candidate.hints)} if candidate.hints else shown


@lru_cache(maxsize=64)
def _render_rules(mode: Mode, grounded: str) -> str:
    """`grounded`: the criterion about claims; empty when the rubric asks for none."""
    for_all = "" if mode == "pointwise" else " for every candidate"
    return _MODE_TEMPLATES[mode].render(
        rules=_RULES.render(scale=_SCALE[mode], for_all=for_all, grounded=grounded),
        verdict=_VERDICT.render(quotes=EVIDENCE_ASKED, claims=bool(grounded)),
    )


def render_correction(problems: Sequence[str]) -> str:
    return replace_surrogates(_CORRECTION.render(problems=problems))


def _serialise_rubric(rubric: Rubric) -> dict[str, JsonValue]:
    """Without weights and caps, which must not influence the scores of single criteria."""
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
        "defects": [
            {"code": rule.code, "description": rule.description, **({"omission": True} if rule.omission else {})}
            for rule in rubric.defects
        ],
    }
