"""Shared by the modes: a group of distinct texts, its usable judgements, and their aggregation per judge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final

from app.domain.judging import REWARD_CRITERION, Candidate, Case, Defect, Judgement, JudgeRequest, Mode, Rubric, Verdict
from app.domain.rewards import apply_bounds, compute_absolute_scores
from app.domain.tasks import Message
from app.judges.presentation_order import derive_opaque_ids
from app.judges.ranks import NEUTRAL, mean, normalise_ranks, rank_by_value, space_as_normal
from app.judges.reliability import GroupSample, measure_reliability
from app.judges.verdict_parsing import drop_unproven_defects
from app.ports.judges import Judge

BY_POSITION: Final = 0.5
"""From this Kendall's tau by slot a judge counts as following position, if it also exceeds the tau by candidate."""

Values = Mapping[str, float | None]
JudgedGroup = tuple["CandidateGroup", Judgement]
"""A group, or part of one, with a judgement of it."""
PartReadings = tuple["CandidateGroup", Sequence["UsableJudgement"]]
"""A group, or part of one, with its usable judgements."""


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
    episodes: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    """Where texts are transcripts: the episodes themselves."""

    @classmethod
    def from_texts(
        cls,
        case: Case,
        texts: Iterable[str],
        own: Mapping[str, str] | None = None,
        hints: Mapping[str, tuple[str, ...]] | None = None,
        episodes: Mapping[str, tuple[Message, ...]] | None = None,
    ) -> "CandidateGroup":
        distinct = tuple(sorted(set(texts)))
        return cls(case, distinct, derive_opaque_ids(case.key, distinct), own or {}, hints or {}, episodes or {})

    @cached_property
    def _candidates(self) -> Mapping[str, Candidate]:
        return {
            text: Candidate.build_trusted(
                id=self.ids[text],
                text=text,
                own=self.own.get(text, ""),
                hints=self.hints.get(text, ()),
                messages=self.episodes.get(text, ()),
            )
            for text in self.texts
        }

    def select_texts(self, texts: Iterable[str]) -> "CandidateGroup":
        """A part of the group with some of its texts, under the same ids."""
        chosen = tuple(sorted(texts))
        return replace(self, texts=chosen, ids={text: self.ids[text] for text in chosen})

    def locate_texts(self, part: "CandidateGroup") -> tuple[int, ...]:
        """The positions of the texts of `part` in this group."""
        where = {text: place for place, text in enumerate(self.texts)}
        return tuple(where[text] for text in part.texts)

    def build_request(self, order: Sequence[str], mode: Mode, vote: int = 0, *, mirrored: bool = True) -> JudgeRequest:
        return JudgeRequest.build_trusted(
            rubric=self.case.rubric,
            document=self.case.document,
            probes=self.case.probes,
            candidates=tuple(map(self._candidates.__getitem__, order)),
            sources=self.case.sources,
            language=self.case.language or ("" if self.case.gates is None else self.case.gates.language),
            mode=mode,
            mirrored=mirrored,
            vote=vote,
            conversation=self.case.conversation,
            wanted=(),
            brief="",
            fresh=False,
        )

    def compute_absolutes(self, values: Sequence[Values]) -> tuple[float, ...]:
        return compute_absolute_scores(self.case.rubric, values)


@dataclass(frozen=True)
class UsableJudgement:
    """A usable judgement of a group or part. Lists follow its texts."""

    verdicts: tuple[Verdict, ...]
    standings: tuple[float, ...]
    slots: tuple[int, ...]
    """Each text's position in the presentation."""
    judge: str = ""
    _samples: "list[tuple[CandidateGroup, GroupSample]]" = field(default_factory=list, compare=False, repr=False)

    def build_sample(self, group: CandidateGroup) -> GroupSample:
        """What this reading of a whole group of several texts says of it. Made once, though it is asked whenever the
        group is looked at."""
        if not self._samples or self._samples[0][0] is not group:
            values = drop_uneven_criteria([apply_bounds(group.case.rubric, each) for each in self.verdicts])
            last = len(self.slots) - 1
            sample = GroupSample(
                standings=space_as_normal(self.standings),
                absolutes=group.compute_absolutes(values),
                places=tuple([2.0 * slot / last - 1.0 for slot in self.slots]),
                judge=self.judge,
            )
            self._samples[:] = [(group, sample)]
        return self._samples[0][1]

    def order_by_slot(self, values: Sequence[float]) -> tuple[float, ...]:
        return tuple(value for _, value in sorted(zip(self.slots, values, strict=True)))


@dataclass(frozen=True)
class JudgeView:
    """The aggregated result of readings of a group that share its orders. Lists follow the group's texts; `relative`
    is null for a single text. It is shrunk towards the middle by `reliability`."""

    verdicts: tuple[tuple[Verdict, ...], ...]
    """Per text, one verdict from each judgement that included it."""
    judges: tuple[tuple[str, ...], ...]
    """Who gave each of these verdicts."""
    values: tuple[Values, ...]
    absolutes: tuple[float, ...]
    relative: tuple[float, ...] | None
    follows_position: bool = False
    reliability: float = 1.0
    """How far its standings are more than noise, from 0 to 1."""
    samples: tuple[GroupSample, ...] = ()
    """What it says of the whole group, each time that it looks at it."""
    is_complete: bool = False
    """The group may not be read again."""
    lacks_readings: bool = False
    """Some of its readings failed for good. The others are enough for an order."""
    deciding_verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    """By text, a further verdict where exactly half of the others report a capping defect. It counts for defects
    alone."""
    follows_rubric: bool = True
    """False for a reward model: its values have the one criterion REWARD_CRITERION."""

    def list_defect_reports(self, place: int) -> tuple[tuple[Defect, ...], ...]:
        """The defects that each judgement of a text reports."""
        further = self.deciding_verdicts.get(place)
        return tuple(verdict.defects for verdict in (*self.verdicts[place], *([further] if further else [])))


@dataclass(frozen=True)
class GroupResult:
    """`view` is null when the judge failed; `error` then says why. Where several judges share the orders, `judge` is
    the one that read first."""

    judge: str
    judgements: tuple[Judgement, ...]
    view: JudgeView | None
    error: str = ""


def build_view(
    group: CandidateGroup,
    parts: Sequence[PartReadings],
    standings: Sequence[float] | None,
    *,
    follows_position: bool = False,
    is_complete: bool = False,
    lacks_readings: bool = False,
) -> JudgeView | None:
    """`parts` include every text at least once. Means over mirrored orders stand, whatever the judge prefers in a
    single one. None when no criterion has a value for every text."""
    verdicts: list[list[Verdict]] = [[] for _ in group.texts]
    judges: list[list[str]] = [[] for _ in group.texts]
    for part, readings in parts:
        places = group.locate_texts(part)
        for reading in readings:
            for place, verdict in zip(places, reading.verdicts, strict=True):
                verdicts[place].append(verdict)
                judges[place].append(reading.judge)
    values = _average_verdicts(group.case.rubric, verdicts)
    if not any(value is not None for each in values for value in each.values()):
        return None
    samples = () if standings is None else build_samples(group, parts)
    reliability = measure_reliability(samples) if samples else 1.0
    return JudgeView(
        verdicts=tuple(map(tuple, verdicts)),
        judges=tuple(map(tuple, judges)),
        values=values,
        absolutes=group.compute_absolutes(values),
        relative=None
        if standings is None
        else tuple(NEUTRAL + reliability * (standing - NEUTRAL) for standing in space_as_normal(standings)),
        follows_position=follows_position,
        is_complete=is_complete,
        reliability=reliability,
        samples=samples,
        lacks_readings=lacks_readings,
    )


def build_samples(group: CandidateGroup, parts: Sequence[PartReadings]) -> tuple[GroupSample, ...]:
    """As many as every part has readings: the first of each together, then the second, and so on. Where parts are
    single texts, standings follow from the absolute values."""
    rounds = min(len(readings) for _, readings in parts)
    if len(parts) == 1 and parts[0][0] is group and len(group.texts) > 1:
        return tuple(reading.build_sample(group) for reading in parts[0][1])
    return tuple(
        _build_sample(group, [(part, readings[number]) for part, readings in parts]) for number in range(rounds)
    )


def _build_sample(group: CandidateGroup, read: Sequence[tuple[CandidateGroup, UsableJudgement]]) -> GroupSample:
    verdicts: list[list[Verdict]] = [[] for _ in group.texts]
    standings, places = ([list[float]() for _ in group.texts] for _ in range(2))
    for part, reading in read:
        last = len(part.texts) - 1
        for number, place in enumerate(group.locate_texts(part)):
            verdicts[place].append(reading.verdicts[number])
            standings[place].append(reading.standings[number])
            places[place].append(2.0 * reading.slots[number] / last - 1.0 if last else 0.0)
    absolutes = group.compute_absolutes(_average_verdicts(group.case.rubric, verdicts))
    judges = {reading.judge for _, reading in read}
    alone = all(len(part.texts) == 1 for part, _ in read)
    return GroupSample(
        standings=space_as_normal(rank_by_value(absolutes) if alone else tuple(map(mean, standings))),
        absolutes=absolutes,
        places=tuple(map(mean, places)),
        judge=judges.pop() if len(judges) == 1 else "",
    )


def _average_verdicts(rubric: Rubric, verdicts: Sequence[Sequence[Verdict]]) -> tuple[Values, ...]:
    """Per text the mean of its bounded scores, by the criteria that have a value for every text."""
    return drop_uneven_criteria(
        [average_values([apply_bounds(rubric, verdict) for verdict in each]) for each in verdicts]
    )


def to_usable(group: CandidateGroup, judgement: Judgement) -> UsableJudgement | None:
    """Converts a judgement of `group`; None when it is invalid."""
    if find_fault(group, judgement):
        return None
    said = {group.ids[text]: group.own.get(text) or text for text in group.texts}
    verdicts = {
        verdict.candidate: drop_unproven_defects(verdict, said[verdict.candidate], group.case.rubric)
        for verdict in judgement.verdicts
    }
    standings = normalise_ranks(judgement.ranking)
    ids = [group.ids[text] for text in group.texts]
    return UsableJudgement(
        verdicts=tuple(verdicts[name] for name in ids),
        standings=tuple(standings[name] for name in ids),
        slots=tuple(judgement.order.index(name) for name in ids),
        judge=judgement.judge,
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
    gives_rewards = all(verdict.reward is not None for verdict in judgement.verdicts)
    criteria = {REWARD_CRITERION} if gives_rewards else {criterion.name for criterion in group.case.rubric.criteria}
    missing: list[set[str]] = []
    for scores in (verdict.scores for verdict in judgement.verdicts):
        missing.append({name for name, value in scores.items() if value is None})
        if scores.keys() != criteria or missing[-1] == criteria:
            return "did not score every candidate by the criteria of the rubric"
        if missing[-1] != missing[0]:
            return "scored a criterion for some candidates only"
    return ""


def drop_uneven_criteria(values: Sequence[Values]) -> tuple[Values, ...]:
    """Keeps only criteria that have a value for every text. Whether a criterion applies depends on the situation, which
    all texts share; with different criteria per text rewards would not be comparable."""
    if all(values[0].keys() == each.keys() and None not in each.values() for each in values):
        return tuple(values)
    names = set(chain.from_iterable(values))
    uneven = {name for name in names if any(each.get(name) is None for each in values)}
    return tuple({name: None if name in uneven else value for name, value in each.items()} for each in values)


def average_values(values: Sequence[Values]) -> Values:
    """Per criterion the mean of the known values; null when there are none."""
    if len(values) == 1:
        return values[0]
    names = dict.fromkeys(chain.from_iterable(values))
    known = {name: [value for each in values if (value := each.get(name)) is not None] for name in names}
    return {name: mean(listed) if listed else None for name, listed in known.items()}
