"""Shared by the modes: a group of distinct texts, its usable judgements, and their aggregation per judge."""

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise
from typing import Final

from app.domain.judging import Candidate, Case, Judgement, JudgeRequest, Mode, Verdict
from app.domain.rewards import apply_bounds, build_criteria, compute_absolute
from app.judges.presentation_order import derive_opaque_ids
from app.ports.judges import Judge

NEUTRAL: Final = 0.5


def normalise_ranks(tiers: Sequence[Sequence[str]]) -> dict[str, float]:
    """1 for the best, 0 for the last; ties share the mean of their places; 0.5 for a single item."""
    count = sum(map(len, tiers))
    standings: dict[str, float] = {}
    above = 0
    for tier in tiers:
        place = above + (len(tier) - 1) / 2
        standings.update(dict.fromkeys(tier, NEUTRAL if count == 1 else 1.0 - place / (count - 1)))
        above += len(tier)
    return standings


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Kendall's tau of two lists of ranks of the same items: 1 when all pairs are in the same order, -1 when all are
    reversed. A pair tied in both lists agrees; tied in one it counts 0."""
    agreements = [_compare_signs(one[i] - one[j], other[i] - other[j]) for i, j in combinations(range(len(one)), 2)]
    return math.fsum(agreements) / len(agreements) if agreements else 1.0


def mean_kendall_tau(readings: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of lists."""
    return mean(kendall_tau(one, other) for one, other in combinations(readings, 2))


def is_top_contested(readings: Sequence[Sequence[float]]) -> bool:
    """Whether the lists disagree about the order of the two items with the best means."""
    means = [mean(column) for column in zip(*readings, strict=True)]
    first, second = sorted(range(len(means)), key=lambda place: (-means[place], place))[:2]
    signs = [_sign(reading[first] - reading[second]) for reading in readings]
    return any(one != other for one, other in pairwise(signs))


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def _compare_signs(one: float, other: float) -> float:
    if _sign(one) == _sign(other):
        return 1.0
    return 0.0 if _sign(one) == 0 or _sign(other) == 0 else -1.0


def _sign(difference: float) -> int:
    return 0 if abs(difference) < 1e-9 else (1 if difference > 0 else -1)


log = logging.getLogger(__name__)

DISAGREEMENT: Final = 0.3
"""Kendall's tau below which judgements contradict each other."""
BY_POSITION: Final = 0.5
"""From this Kendall's tau by slot a judge counts as following position, if it also exceeds the tau by candidate."""

Values = Mapping[str, float | None]
JudgedGroup = tuple["CandidateGroup", Judgement]
"""A group, or part of one, with a judgement of it."""


@dataclass(frozen=True)
class CandidateGroup:
    """Distinct texts that are judged together, in an order that is independent of the request's."""

    case: Case
    texts: tuple[str, ...]
    ids: Mapping[str, str]
    own: Mapping[str, str]
    """The models' own words, where texts are transcripts of episodes."""
    hints: Mapping[str, tuple[str, ...]]
    """Findings of word checks in single texts, which judges are given."""

    @classmethod
    def from_texts(
        cls,
        case: Case,
        texts: Iterable[str],
        own: Mapping[str, str] | None = None,
        hints: Mapping[str, tuple[str, ...]] | None = None,
    ) -> "CandidateGroup":
        distinct = tuple(sorted(set(texts)))
        return cls(case, distinct, derive_opaque_ids(case.key, distinct), own or {}, hints or {})

    def select_texts(self, texts: Iterable[str]) -> "CandidateGroup":
        """A part of the group with some of its texts, under the same ids."""
        chosen = tuple(sorted(texts))
        return CandidateGroup(self.case, chosen, {text: self.ids[text] for text in chosen}, self.own, self.hints)

    def locate_texts(self, part: "CandidateGroup") -> tuple[int, ...]:
        """The positions of the texts of `part` in this group."""
        where = {text: place for place, text in enumerate(self.texts)}
        return tuple(where[text] for text in part.texts)

    def build_request(self, order: Sequence[str], mode: Mode, vote: int = 0) -> JudgeRequest:
        return JudgeRequest(
            rubric=self.case.rubric,
            document=self.case.document,
            probes=self.case.probes,
            sources=self.case.sources,
            language=self.case.language or ("" if self.case.gates is None else self.case.gates.language),
            candidates=tuple(
                Candidate(id=self.ids[text], text=text, own=self.own.get(text, ""), hints=self.hints.get(text, ()))
                for text in order
            ),
            mode=mode,
            vote=vote,
        )

    def compute_absolutes(self, values: Sequence[Values]) -> tuple[float, ...]:
        return tuple(compute_absolute(build_criteria(self.case.rubric, each)) for each in values)


@dataclass(frozen=True)
class UsableJudgement:
    """A usable judgement of a group or part. Lists follow its texts."""

    verdicts: tuple[Verdict, ...]
    standings: tuple[float, ...]
    absolutes: tuple[float, ...]
    slots: tuple[int, ...]
    """Each text's position in the presentation."""

    def order_by_slot(self, values: Sequence[float]) -> tuple[float, ...]:
        return tuple(value for _, value in sorted(zip(self.slots, values, strict=True)))


@dataclass(frozen=True)
class JudgeView:
    """One judge's aggregated result for a group. Lists follow the group's texts; `relative` is null for a single
    text."""

    judge: str
    verdicts: tuple[tuple[Verdict, ...], ...]
    """Per text, one verdict from each judgement that included it."""
    values: tuple[Values, ...]
    absolutes: tuple[float, ...]
    relative: tuple[float, ...] | None
    follows_position: bool = False
    agrees: bool = True
    """False when its judgements contradict each other. Then `relative` is the same for all."""


@dataclass(frozen=True)
class GroupResult:
    """`view` is null when the judge failed; `error` then says why."""

    judge: str
    judgements: tuple[Judgement, ...]
    view: JudgeView | None
    error: str = ""


async def ask_judge(judge: Judge, request: JudgeRequest) -> Judgement:
    """Asks `judge`. An exception becomes a failed judgement."""
    try:
        return await judge.judge(request)
    except Exception:
        log.exception("judge raised an exception: judge=%s", judge.name)
        return Judgement(
            judge=judge.name,
            model=judge.model,
            order=tuple(candidate.id for candidate in request.candidates),
            error="the judge raised an exception; see the log",
            failure="unavailable",
        )


async def read_lone_text(judge: Judge, group: CandidateGroup, mode: Mode, votes: int = 1) -> GroupResult:
    """For a single text, without comparison."""
    requests = [group.build_request(group.texts, mode, vote) for vote in range(votes)]
    judgements = tuple(await asyncio.gather(*(ask_judge(judge, request) for request in requests)))
    readings = [reading for judgement in judgements if (reading := to_usable(group, judgement)) is not None]
    if not readings:
        return build_failed_result(judge, [(group, judgement) for judgement in judgements])
    return build_result(judge, judgements, build_view(judge.name, group, [(group, readings)], None))


def build_view(
    judge: str,
    group: CandidateGroup,
    parts: Iterable[tuple[CandidateGroup, Sequence[UsableJudgement]]],
    standings: Sequence[float] | None,
    *,
    follows_position: bool = False,
    agrees: bool = True,
    levelled: bool = False,
) -> JudgeView | None:
    """`parts` include every text at least once. `standings` are ignored unless the judge `agrees` with itself;
    `levelled` gives every text the group's mean scores. None when no criterion has a value for every text."""
    verdicts: list[list[Verdict]] = [[] for _ in group.texts]
    for part, readings in parts:
        places = group.locate_texts(part)
        for reading in readings:
            for place, verdict in zip(places, reading.verdicts, strict=True):
                verdicts[place].append(verdict)
    rubric = group.case.rubric
    values = drop_uneven_criteria(
        [average_values([apply_bounds(rubric, verdict) for verdict in each]) for each in verdicts]
    )
    if levelled:
        values = (average_values(values),) * len(values)
    relative = None if standings is None else tuple(standings) if agrees else (NEUTRAL,) * len(standings)
    if not any(value is not None for each in values for value in each.values()):
        return None
    return JudgeView(
        judge=judge,
        verdicts=tuple(map(tuple, verdicts)),
        values=values,
        absolutes=group.compute_absolutes(values),
        relative=relative,
        follows_position=follows_position,
        agrees=agrees,
    )


def to_usable(group: CandidateGroup, judgement: Judgement) -> UsableJudgement | None:
    """Converts a judgement of `group`; None when it is invalid."""
    if find_fault(group, judgement):
        return None
    verdicts = {verdict.candidate: verdict for verdict in judgement.verdicts}
    standings = normalise_ranks(judgement.ranking)
    ids = [group.ids[text] for text in group.texts]
    return UsableJudgement(
        verdicts=tuple(verdicts[name] for name in ids),
        standings=tuple(standings[name] for name in ids),
        absolutes=group.compute_absolutes([apply_bounds(group.case.rubric, verdicts[name]) for name in ids]),
        slots=tuple(judgement.order.index(name) for name in ids),
    )


def build_result(judge: Judge, judgements: Sequence[Judgement], view: JudgeView | None) -> GroupResult:
    """The result of judgements that are all usable."""
    error = "" if view is not None else "no criterion has a score for every reply"
    return GroupResult(judge.name, tuple(judgements), view, error)


def build_failed_result(judge: Judge, asked: Sequence[JudgedGroup]) -> GroupResult:
    """A result without a view. Each error is listed once."""
    errors = dict.fromkeys(filter(None, (find_fault(group, judgement) for group, judgement in asked)))
    return GroupResult(judge.name, tuple(judgement for _, judgement in asked), None, "; ".join(errors))


def find_fault(group: CandidateGroup, judgement: Judgement) -> str:
    """Why a judgement is invalid; empty when it is valid. Judges of plug-ins may not check their own answers."""
    if judgement.error is not None:
        return judgement.error or "failed without an error message"
    expected = sorted(group.ids.values())
    if sorted(verdict.candidate for verdict in judgement.verdicts) != expected:
        return "did not judge every candidate exactly once"
    if sorted(chain.from_iterable(judgement.ranking)) != expected:
        return "did not rank every candidate exactly once"
    if sorted(judgement.order) != expected:
        return "did not report its presentation order"
    criteria = {criterion.name for criterion in group.case.rubric.criteria}
    for scores in (verdict.scores for verdict in judgement.verdicts):
        if set(scores) != criteria or all(value is None for value in scores.values()):
            return "did not score every candidate by the criteria of the rubric"
        if any((scores[name] is None) != (judgement.verdicts[0].scores[name] is None) for name in criteria):
            return "scored a criterion for some candidates only"
    return ""


def drop_uneven_criteria(values: Sequence[Values]) -> tuple[Values, ...]:
    """Keeps only criteria that have a value for every text. Whether a criterion applies depends on the situation, which
    all texts share; with different criteria per text rewards would not be comparable."""
    return tuple(
        {name: value if all(other.get(name) is not None for other in values) else None for name, value in each.items()}
        for each in values
    )


def average_values(values: Sequence[Values]) -> Values:
    """Per criterion the mean of the known values; null when there are none."""
    names = dict.fromkeys(chain.from_iterable(values))
    known = {name: [value for each in values if (value := each.get(name)) is not None] for name in names}
    return {name: mean(listed) if listed else None for name, listed in known.items()}
