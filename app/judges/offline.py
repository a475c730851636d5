"""The offline judge, used when none is configured: deterministic and without a model, for trying the system."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from app.domain.digests import digest
from app.domain.judging import Candidate, Defect, Judgement, JudgeRequest, Rubric, Verdict
from app.domain.rewards import apply_bounds, compute_absolute_score, find_cap
from app.judges.claims import build_unsupported_defects
from app.judges.event_mentions import EventMentions, EventWords
from app.judges.gates.gate_registry import list_given_hints
from app.judges.languages import LANGUAGES, Language, detect_language, get_language
from app.judges.lexical import FaultQuotes, Lexicon, Measures, get_answered_line, join_conversation, quote_faults
from app.toolkit.large_texts import run_in_turn

NAME: Final = "offline"
MODEL: Final = "offline-lexical-3"

_BANNED_CODES: Final = ("future_knowledge", "secret_leak", "lore_contradiction")
"""A forbidden mention is reported as the first of these codes that the rubric has."""
_MOST_JUDGED_ON_LOOP: Final = 50_000
"""Largest group, in characters, that is judged on the event loop."""
_TIE_DECIMALS: Final = 3
"""Decimal places to which two values must be equal for a tie."""


class OfflineJudge:
    """Judges by words, not meaning. Prefers replies that use the voice and facts of sheet and scene and answer the
    line; penalises assistant phrases and empty sentences. Fails for languages it does not support. Not for training."""

    name = NAME
    model = MODEL
    digest = digest([MODEL])
    languages = LANGUAGES

    async def judge(self, request: JudgeRequest) -> Judgement:
        if sum(len(candidate.text) for candidate in request.candidates) > _MOST_JUDGED_ON_LOOP:
            return await run_in_turn("judges", self._judge_blocking, request)
        return self._judge_blocking(request)

    def _judge_blocking(self, request: JudgeRequest) -> Judgement:
        order = tuple(candidate.id for candidate in request.candidates)
        known = _choose_language(request)
        if known is None:
            words = f"knows {', '.join(LANGUAGES)} and no other language: {_describe_language(request)}"
            return Judgement(judge=self.name, model=self.model, order=order, error=words, failure="language")
        verdicts = _build_verdicts(request, known)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=verdicts,
            ranking=rank_candidates(
                {verdict.candidate: _compute_worth(request.rubric, verdict) for verdict in verdicts}
            ),
        )


def _choose_language(request: JudgeRequest) -> Language | None:
    """The stated language, else detected from the answered line, else from the conversation. Never from the candidates:
    a model could then choose not to be scored."""
    if request.language:
        return get_language(request.language)
    return detect_language(get_answered_line(request.document)) or detect_language(join_conversation(request.document))


def _describe_language(request: JudgeRequest) -> str:
    """As it is stored in rationales: the words stay."""
    if request.language:
        return f"this is {request.language!r}"
    return "what is answered is in another, or too short to tell"


def _compute_worth(rubric: Rubric, verdict: Verdict) -> float:
    return min(compute_absolute_score(rubric, apply_bounds(rubric, verdict)), find_cap(rubric, verdict.defects))


def rank_candidates(standings: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Best first. Values that are equal after rounding are tied."""
    rounded = sorted((-round(value, _TIE_DECIMALS), candidate) for candidate, value in standings.items())
    return tuple(tuple(candidate for _, candidate in tier) for _, tier in groupby(rounded, key=lambda pair: pair[0]))


def _build_verdicts(request: JudgeRequest, known: Language) -> tuple[Verdict, ...]:
    lexicon = Lexicon.from_request(request, known)
    events = EventWords.from_request(request, known, lexicon.world)
    read = [_read_candidate(lexicon, events, candidate) for candidate in request.candidates]
    silent: set[str] = set()
    if not events.called and not any(each.mentions.claims for each in read):
        silent.add("event_grounding")
    if not events.withheld and not request.probes.must_not_mention:
        silent.add("knowledge_boundary")
    return tuple(_build_verdict(request.rubric, each, events.called, silent) for each in read)


@dataclass(frozen=True)
class _CandidateReading:
    candidate: str
    measures: Measures
    mentions: EventMentions
    evidence: tuple[str, ...]
    quotes: FaultQuotes


def _read_candidate(lexicon: Lexicon, events: EventWords, candidate: Candidate) -> _CandidateReading:
    own = candidate.own or candidate.text
    hinted = any(hint.confirmed for hint in list_given_hints(candidate))
    measures = lexicon.measure(own)
    return _CandidateReading(
        candidate.id,
        measures,
        events.find_mentions(own, hinted=hinted),
        lexicon.select_quotes(own),
        quote_faults(own, measures),
    )


def _build_verdict(rubric: Rubric, read: _CandidateReading, called: bool, silent: Collection[str]) -> Verdict:
    """`silent`: criteria that apply to none of the candidates."""
    measures, mentions = read.measures, read.mentions
    values = {name: measured(measures) for name, measured in _MEASURED_CRITERIA.items()}
    values["knowledge_boundary"] = _score_knowledge_boundary(measures, mentions)
    values["event_grounding"] = _score_event_grounding(measures, mentions, called)
    scores = {
        criterion.name: None
        if criterion.name in silent
        else round(values.get(criterion.name, _score_relevance(measures)), 4)
        for criterion in rubric.criteria
    }
    claims = () if rubric.claims is None else mentions.claims
    return Verdict(
        candidate=read.candidate,
        evidence=read.evidence,
        claims=claims,
        defects=(
            *_find_defects(rubric, read),
            *_find_event_defects(rubric, mentions, called),
            *build_unsupported_defects(rubric, claims),
        ),
        scores=scores,
        note=(
            f"Words only, no model: voice {measures.voice:.2f}, facts {measures.facts:.2f}, "
            f"on the subject {measures.focus:.2f}, takes up the line {measures.answers:.2f}."
        ),
    )


def _find_defects(rubric: Rubric, read: _CandidateReading) -> tuple[Defect, ...]:
    known = {rule.code for rule in rubric.defects}
    measures, quotes = read.measures, read.quotes
    found: list[Defect] = []
    banned = next((code for code in _BANNED_CODES if code in known), None)
    if measures.banned and banned is not None:
        found.append(Defect(code=banned, quote=quotes.banned))
    if measures.assistant >= 0.5 and "assistant_tone" in known:
        found.append(Defect(code="assistant_tone", quote=quotes.assistant))
    if measures.repetition >= 0.5 and "repetition" in known:
        found.append(Defect(code="repetition", quote=quotes.repetition))
    return tuple(found)


def _find_event_defects(rubric: Rubric, mentions: EventMentions, called: bool) -> tuple[Defect, ...]:
    known = {rule.code for rule in rubric.defects}
    found: list[Defect] = []
    if mentions.gives_away and "knows_withheld" in known:
        found.append(Defect(code="knows_withheld", quote=mentions.gives_away))
    if called and not mentions.takes_up and "ignores_event" in known:
        found.append(Defect(code="ignores_event"))
    return tuple(found)


def _weigh_parts(*parts: tuple[float, float]) -> float:
    return sum(weight * value for weight, value in parts)


def _score_soundness(measures: Measures) -> float:
    return (1.0 - 0.6 * measures.assistant) * (1.0 - 0.5 * measures.repetition) * (1.0 - 0.4 * measures.idle)


def _score_consistency(measures: Measures) -> float:
    return _score_soundness(measures) * _weigh_parts((0.5, measures.voice), (0.5, measures.focus))


def _score_lore_accuracy(measures: Measures) -> float:
    value = _weigh_parts((0.5, measures.facts), (0.5, measures.focus))
    return value * (0.2 if measures.banned else 1.0)


def _score_engagingness(measures: Measures) -> float:
    return _score_soundness(measures) * _weigh_parts((0.6, measures.hook), (0.4, measures.focus))


def _score_responsiveness(measures: Measures) -> float:
    return _weigh_parts((0.7, measures.answers), (0.3, measures.focus))


def _score_topicality(measures: Measures) -> float:
    return max(measures.focus, measures.answers)


def _score_knowledge_boundary(measures: Measures, mentions: EventMentions) -> float:
    """A reply that is off topic earns nothing for keeping to limits."""
    if mentions.gives_away:
        return 0.0
    return (0.2 if measures.banned else 1.0) * _score_topicality(measures)


def _score_event_grounding(measures: Measures, mentions: EventMentions, called: bool) -> float:
    if any(claim.source is None for claim in mentions.claims):
        return 0.25 * _score_topicality(measures)
    if called and not mentions.takes_up:
        return 0.5 * _score_topicality(measures)
    return _score_topicality(measures)


def _score_relevance(measures: Measures) -> float:
    """For criteria that words cannot measure: whether the reply is on topic. Words of the conversation count only as
    far as the line is answered, so repeating the conversation earns nothing."""
    focus = min(measures.focus, measures.answers)
    return _weigh_parts((0.6, measures.answers), (0.4, focus)) * (1.0 - 0.5 * measures.repetition)


_MEASURED_CRITERIA: Final[Mapping[str, Callable[[Measures], float]]] = {
    "in_character_consistency": _score_consistency,
    "lore_accuracy": _score_lore_accuracy,
    "engagingness": _score_engagingness,
    "responsiveness": _score_responsiveness,
}
