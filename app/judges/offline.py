"""The offline judge, used when none is configured: deterministic and without a model, for trying the system."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from app.domain.digests import digest
from app.domain.judging import Candidate, Defect, Judgement, JudgeRequest, Rubric, Verdict
from app.domain.rewards import absolute_of, bounded, cap_of, criteria_of
from app.judges.claims import unsupported
from app.judges.gates.registry import told_of
from app.judges.languages import LANGUAGES, Language, language, told_language
from app.judges.lexical import Lexicon, Measures, line_of, said
from app.judges.mentions import EventWords, Mentions

NAME: Final = "offline"
MODEL: Final = "offline-lexical-3"

_BANNED_CODES: Final = ("future_knowledge", "secret_leak", "lore_contradiction")
"""A forbidden mention is reported as the first of these codes that the rubric has."""
_AT_ONCE: Final = 50_000
"""Largest group, in characters, that is judged on the event loop."""
_TIE: Final = 3
"""Decimal places to which two values must be equal for a tie."""


class OfflineJudge:
    """Judges by words, not meaning. Prefers replies that use the voice and facts of sheet and scene and answer the
    line; penalises assistant phrases and empty sentences. Fails for languages it does not support. Not for training."""

    name = NAME
    model = MODEL
    digest = digest([MODEL])
    languages = LANGUAGES

    async def judge(self, request: JudgeRequest) -> Judgement:
        if sum(len(candidate.text) for candidate in request.candidates) > _AT_ONCE:
            return await asyncio.to_thread(self._judged, request)
        return self._judged(request)

    def _judged(self, request: JudgeRequest) -> Judgement:
        order = tuple(candidate.id for candidate in request.candidates)
        known = _language_of(request)
        if known is None:
            words = f"supports only the languages {', '.join(LANGUAGES)}: {_stated(request)}"
            return Judgement(judge=self.name, model=self.model, order=order, error=words, failure="language")
        verdicts = _verdicts(request, known)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=verdicts,
            ranking=ranked({verdict.candidate: _worth(request.rubric, verdict) for verdict in verdicts}),
        )


def _language_of(request: JudgeRequest) -> Language | None:
    """The stated language, else detected from the answered line, else from the conversation. Never from the candidates:
    a model could then choose not to be scored."""
    if request.language:
        return language(request.language)
    return told_language(line_of(request.document)) or told_language(said(request.document))


def _stated(request: JudgeRequest) -> str:
    return f"the language is {request.language!r}" if request.language else "the language could not be detected"


def standing(rubric: Rubric, scores: Mapping[str, float | None]) -> float:
    return absolute_of(criteria_of(rubric, scores))


def _worth(rubric: Rubric, verdict: Verdict) -> float:
    return min(standing(rubric, bounded(rubric, verdict)), cap_of(rubric, verdict.defects))


def ranked(standings: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Best first. Values that are equal after rounding are tied."""
    rounded = sorted((-round(value, _TIE), candidate) for candidate, value in standings.items())
    return tuple(tuple(candidate for _, candidate in tier) for _, tier in groupby(rounded, key=lambda pair: pair[0]))


def _verdicts(request: JudgeRequest, known: Language) -> tuple[Verdict, ...]:
    lexicon = Lexicon.of(request, known)
    events = EventWords.of(request, known, lexicon.world)
    read = [_read(lexicon, events, candidate) for candidate in request.candidates]
    silent: set[str] = set()
    if not events.called and not any(each.mentions.claims for each in read):
        silent.add("event_grounding")
    if not events.withheld and not request.probes.must_not_mention:
        silent.add("knowledge_boundary")
    return tuple(_verdict(request.rubric, each, events.called, silent) for each in read)


@dataclass(frozen=True)
class _Read:
    candidate: str
    measures: Measures
    mentions: Mentions
    evidence: tuple[str, ...]


def _read(lexicon: Lexicon, events: EventWords, candidate: Candidate) -> _Read:
    own = candidate.own or candidate.text
    hinted = any(hint.confirmed for hint in told_of(candidate))
    return _Read(candidate.id, lexicon.measure(own), events.read(own, hinted=hinted), lexicon.quotes(own))


def _verdict(rubric: Rubric, read: _Read, called: bool, silent: Collection[str]) -> Verdict:
    """`silent`: criteria that apply to none of the candidates."""
    measures, mentions = read.measures, read.mentions
    values = {name: measured(measures) for name, measured in _MEASURED.items()}
    values["knowledge_boundary"] = _boundary(measures, mentions)
    values["event_grounding"] = _grounding(measures, mentions, called)
    scores = {
        criterion.name: None if criterion.name in silent else round(values.get(criterion.name, _relevance(measures)), 4)
        for criterion in rubric.criteria
    }
    claims = () if rubric.claims is None else mentions.claims
    return Verdict(
        candidate=read.candidate,
        evidence=read.evidence,
        claims=claims,
        defects=(*_defects(rubric, measures), *_of_events(rubric, mentions, called), *unsupported(rubric, claims)),
        scores=scores,
        note=(
            f"Words only, no model: voice {measures.voice:.2f}, facts {measures.facts:.2f}, "
            f"on the subject {measures.focus:.2f}, takes up the line {measures.answers:.2f}."
        ),
    )


def _defects(rubric: Rubric, measures: Measures) -> tuple[Defect, ...]:
    known = {rule.code for rule in rubric.defects}
    found: list[Defect] = []
    banned = next((code for code in _BANNED_CODES if code in known), None)
    if measures.banned and banned is not None:
        found.append(Defect(code=banned))
    if measures.assistant >= 0.5 and "assistant_tone" in known:
        found.append(Defect(code="assistant_tone"))
    if measures.repetition >= 0.5 and "repetition" in known:
        found.append(Defect(code="repetition"))
    return tuple(found)


def _of_events(rubric: Rubric, mentions: Mentions, called: bool) -> tuple[Defect, ...]:
    known = {rule.code for rule in rubric.defects}
    found: list[Defect] = []
    if mentions.gives_away and "knows_withheld" in known:
        found.append(Defect(code="knows_withheld", quote=mentions.gives_away))
    if called and not mentions.takes_up and "ignores_event" in known:
        found.append(Defect(code="ignores_event"))
    return tuple(found)


def _mean(*parts: tuple[float, float]) -> float:
    return sum(weight * value for weight, value in parts)


def _soundness(measures: Measures) -> float:
    return (1.0 - 0.6 * measures.assistant) * (1.0 - 0.5 * measures.repetition) * (1.0 - 0.4 * measures.idle)


def _in_character(measures: Measures) -> float:
    return _soundness(measures) * _mean((0.5, measures.voice), (0.5, measures.focus))


def _accuracy(measures: Measures) -> float:
    value = _mean((0.5, measures.facts), (0.5, measures.focus))
    return value * (0.2 if measures.banned else 1.0)


def _engaging(measures: Measures) -> float:
    return _soundness(measures) * _mean((0.6, measures.hook), (0.4, measures.focus))


def _responsive(measures: Measures) -> float:
    return _mean((0.7, measures.answers), (0.3, measures.focus))


def _on_the_matter(measures: Measures) -> float:
    return max(measures.focus, measures.answers)


def _boundary(measures: Measures, mentions: Mentions) -> float:
    """A reply that is off topic earns nothing for keeping to limits."""
    if mentions.gives_away:
        return 0.0
    return (0.2 if measures.banned else 1.0) * _on_the_matter(measures)


def _grounding(measures: Measures, mentions: Mentions, called: bool) -> float:
    if any(claim.source is None for claim in mentions.claims):
        return 0.25 * _on_the_matter(measures)
    if called and not mentions.takes_up:
        return 0.5 * _on_the_matter(measures)
    return _on_the_matter(measures)


def _relevance(measures: Measures) -> float:
    """For criteria that words cannot measure: whether the reply is on topic. Words of the conversation count only as
    far as the line is answered, so repeating the conversation earns nothing."""
    focus = min(measures.focus, measures.answers)
    return _mean((0.6, measures.answers), (0.4, focus)) * (1.0 - 0.5 * measures.repetition)


_MEASURED: Final[Mapping[str, Callable[[Measures], float]]] = {
    "in_character_consistency": _in_character,
    "lore_accuracy": _accuracy,
    "engagingness": _engaging,
    "responsiveness": _responsive,
}
