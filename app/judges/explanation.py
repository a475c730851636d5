"""How a stored score came about, worked out from the stored judgements by the functions that made it.

What a score keeps is exact, but not how far each judge's order was shrunk, nor which readings count. Whatever is worked
out here reproduces what is stored, to a millionth; where nothing does, there is no explanation. Every way in which the
modes put readings together is tried, until one gives the stored score.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.judging import Case, Defect, Judgement, Rubric, build_criteria, find_cap
from app.domain.scores import Score
from app.judges.aggregation import (
    CandidateGroup,
    JudgeView,
    UsableJudgement,
    Values,
    average_values,
    build_view,
    compute_win_rates,
    rank_by_value,
    space_as_normal,
    to_usable,
)
from app.judges.modes import compute_shares, count_reported, is_divided
from app.judges.panel import average_standings
from app.judges.reward_models import REWARD_RUBRIC, build_reward_view

_TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class JudgeShare:
    """What one judge, or several that share their orders, say of the order. By candidate: `standings` as they were
    before they were shrunk, `relatives` after."""

    judges: tuple[str, ...]
    readings: tuple[int, ...]
    """Places among the judgements."""
    grades: bool
    """False for a reward model."""
    reliability: float
    standings: Mapping[str, float]
    relatives: Mapping[str, float]


@dataclass(frozen=True)
class DefectReport:
    """How many of the readings of a candidate report a defect, and what they quote. `counts` when it bounds the
    reward."""

    code: str
    reported: int
    readings: int
    quotes: tuple[str, ...]
    counts: bool
    cap: float | None


@dataclass(frozen=True)
class GroupExplanation:
    """`values` are the means that criteria were built from, by candidate. `used` are the judgements that make them."""

    shares: tuple[JudgeShare, ...]
    values: Mapping[str, Values]
    used: frozenset[int]
    defects: Mapping[str, tuple[DefectReport, ...]]


@dataclass(frozen=True)
class _Reading:
    """A usable judgement with its number among all."""

    number: int
    judgement: Judgement
    part: CandidateGroup
    usable: UsableJudgement

    @property
    def gives_reward(self) -> bool:
        return all(verdict.reward is not None for verdict in self.usable.verdicts)


def explain_group(
    rubric: Rubric, judgements: Sequence[Judgement], scores: Sequence[Score], texts: Mapping[str, str]
) -> GroupExplanation | None:
    """None when nothing reproduces the scores, or when nobody compared anything. `texts` are the completions by
    candidate, as far as they are kept: quotes are looked for in them."""
    judged = {
        score.candidate: score for score in scores if score.candidate and score.outcome == "scored" and score.judges
    }
    if not judged:
        return None
    group = _build_group(rubric, judgements, judged, texts)
    readings = list(_list_readings(group, judgements))
    grading = [reading for reading in readings if not reading.gives_reward]
    rewards = _split_by_judge([reading for reading in readings if reading.gives_reward])
    for parts in _arrange_readings(group, grading, judgements):
        views = [_view_graders(group, some) for some in parts] + [_view_rewards(group, some) for some in rewards]
        used = [*parts, *rewards]
        usable_views = [view for view in views if view is not None]
        if usable_views and len(usable_views) == len(views) and _reproduces(group, usable_views, judged):
            return _describe(group, usable_views, used, grading, judged)
    return None


def _build_group(
    rubric: Rubric, judgements: Sequence[Judgement], judged: Mapping[str, Score], texts: Mapping[str, str]
) -> CandidateGroup:
    """Where a text is not kept its quotes stand for it: they were found in it when it was."""
    quotes: defaultdict[str, list[str]] = defaultdict(list)
    for verdict in (verdict for judgement in judgements for verdict in judgement.verdicts):
        quotes[verdict.candidate] += [defect.quote for defect in verdict.defects]
    ids = {texts.get(name) or "\n".join((name, *quotes[name])): name for name in judged}
    if len(ids) < len(judged):  # equal texts: nothing tells them apart but their ids
        ids = {"\n".join((name, *quotes[name])): name for name in judged}
    return CandidateGroup(Case(key="", rubric=rubric, document={}, candidates=()), tuple(sorted(ids)), ids, {}, {})


def _list_readings(group: CandidateGroup, judgements: Sequence[Judgement]) -> Iterator[_Reading]:
    by_id = {name: text for text, name in group.ids.items()}
    for number, judgement in enumerate(judgements):
        if judgement.purpose != "score" or judgement.error is not None or not set(judgement.order) <= set(by_id):
            continue
        part = group.select_texts(by_id[name] for name in judgement.order)
        usable = to_usable(part, judgement)
        if usable is not None:
            yield _Reading(number, judgement, part, usable)


def _view_graders(group: CandidateGroup, readings: Sequence[_Reading]) -> JudgeView | None:
    parts = _collect_parts(readings)
    if len(group.texts) == 1:
        return build_view(group, parts, None)
    return build_view(group, parts, _compute_standings(group, parts))


def _compute_standings(
    group: CandidateGroup, parts: Sequence[tuple[CandidateGroup, tuple[UsableJudgement, ...]]]
) -> tuple[float, ...] | None:
    if all(len(part.texts) == 1 for part, _ in parts):
        alone = build_view(group, parts, None)
        return None if alone is None else rank_by_value(alone.absolutes)
    return compute_win_rates(len(group.texts), compute_shares(group, parts))


def _collect_parts(readings: Sequence[_Reading]) -> list[tuple[CandidateGroup, tuple[UsableJudgement, ...]]]:
    parts: dict[tuple[str, ...], tuple[CandidateGroup, list[UsableJudgement]]] = {}
    for reading in readings:
        parts.setdefault(reading.part.texts, (reading.part, []))[1].append(reading.usable)
    return [(part, tuple(usable)) for part, usable in parts.values()]


def _view_rewards(group: CandidateGroup, readings: Sequence[_Reading]) -> JudgeView | None:
    verdicts = {reading.part.texts[0]: reading.usable.verdicts[0] for reading in readings}
    if set(verdicts) != set(group.texts):
        return None
    ordered = [verdicts[text] for text in group.texts]
    return build_reward_view(readings[0].judgement.judge, ordered, [verdict.reward or 0.0 for verdict in ordered])


def _reproduces(group: CandidateGroup, views: Sequence[JudgeView], judged: Mapping[str, Score]) -> bool:
    relatives, values = average_standings(views, len(group.texts)), _average(views)
    rubric = group.case.rubric if any(view.follows_rubric for view in views) else REWARD_RUBRIC
    for text, relative, each in zip(group.texts, relatives, values, strict=True):
        score = judged[group.ids[text]]
        alone = score.absolute if len(group.texts) == 1 else relative
        made = [(one.name, one.value, one.weight) for one in build_criteria(rubric, each)]
        stored = [(one.name, one.value, one.weight) for one in score.criteria]
        if not _is_close(alone, score.relative) or len(made) != len(stored):
            return False
        if not all(
            one == name and _is_close(value, stored_value) and _is_close(weight, whole)
            for (one, value, weight), (name, stored_value, whole) in zip(made, stored, strict=True)
        ):
            return False
    return True


def _is_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _TOLERANCE


def _average(views: Sequence[JudgeView]) -> list[Values]:
    graders = [view for view in views if view.follows_rubric] or views
    return [average_values(column) for column in zip(*(view.values for view in graders), strict=True)]


def _describe(
    group: CandidateGroup,
    views: Sequence[JudgeView],
    used: Sequence[Sequence[_Reading]],
    grading: Sequence[_Reading],
    judged: Mapping[str, Score],
) -> GroupExplanation:
    names = [group.ids[text] for text in group.texts]
    numbers = frozenset(reading.number for readings in used for reading in readings)
    return GroupExplanation(
        shares=tuple(_describe_share(group, view, readings) for view, readings in zip(views, used, strict=True)),
        values=dict(zip(names, _average(views), strict=True)),
        used=numbers,
        defects={name: _count_defects(group, name, grading, numbers, judged[name]) for name in names},
    )


def _describe_share(group: CandidateGroup, view: JudgeView, readings: Sequence[_Reading]) -> JudgeShare:
    names = [group.ids[text] for text in group.texts]
    relatives = view.relative or ()
    if view.follows_rubric and relatives:
        standings: Sequence[float] = space_as_normal(_compute_standings(group, _collect_parts(readings)) or ())
    else:
        standings = relatives
    return JudgeShare(
        judges=tuple(dict.fromkeys(reading.judgement.judge for reading in readings)),
        readings=tuple(reading.number for reading in readings),
        grades=view.follows_rubric,
        reliability=view.reliability,
        standings=dict(zip(names, standings, strict=False)),
        relatives=dict(zip(names, relatives, strict=False)),
    )


def _count_defects(
    group: CandidateGroup, name: str, grading: Sequence[_Reading], used: frozenset[int], score: Score
) -> tuple[DefectReport, ...]:
    """With a further reading of a divided defect where that is what gives the stored cap."""
    rubric = group.case.rubric
    reports = [(reading.number, _list_defects(reading, name)) for reading in grading if name in reading.judgement.order]
    first = [defects for number, defects in reports if number in used]
    every = [defects for _, defects in reports]
    cap = 1.0 if score.cap is None else score.cap
    counted = first if _is_close(find_cap(rubric, count_reported(first).values()), cap) else every
    counting = count_reported(counted)
    if not _is_close(find_cap(rubric, counting.values()), cap):
        return ()
    caps = {rule.code: rule.cap for rule in rubric.defects}
    codes = dict.fromkeys(defect.code for defects in counted for defect in defects)
    return tuple(
        DefectReport(
            code=code,
            reported=sum(any(defect.code == code for defect in defects) for defects in counted),
            readings=len(counted),
            quotes=tuple(
                dict.fromkeys(
                    defect.quote for defects in counted for defect in defects if defect.code == code and defect.quote
                )
            ),
            counts=code in counting,
            cap=caps.get(code),
        )
        for code in codes
    )


def _list_defects(reading: _Reading, name: str) -> tuple[Defect, ...]:
    return next(verdict.defects for verdict in reading.usable.verdicts if verdict.candidate == name)


# Arrangements: which readings were put together, and how. Nobody wrote it down when they were.


def _arrange_readings(
    group: CandidateGroup, readings: Sequence[_Reading], judgements: Sequence[Judgement]
) -> Iterator[list[list[_Reading]]]:
    """The ways in which readings by the rubric may have been put together, the likeliest first. A further reading for
    divided defects is in none of the parts, and neither is one whose mirror failed."""
    if not readings:
        yield []
        return
    for some in _select(group, readings, judgements):
        apart = _split_by_judge(some)
        if all(_covers(group, own) for own in apart):
            yield apart
        if len(apart) > 1 and _covers(group, some):
            yield [list(some)]


def _select(
    group: CandidateGroup, readings: Sequence[_Reading], judgements: Sequence[Judgement]
) -> Iterator[list[_Reading]]:
    count = len(group.texts)
    sizes = Counter(len(reading.part.texts) for reading in readings)
    for size in sorted(sizes, reverse=True):
        some = [reading for reading in readings if len(reading.part.texts) == size]
        if size == 1:
            yield from _list_once(_keep_rounds(some, judgements), some, _leave_out_deciding(group, some))
        else:
            yield from _list_once(_keep_mirrored(some), some)
        if size == 2 and count > 1:
            yield from _list_once(_keep_votes(some, judgements))
    if len(sizes) > 1:
        larger = [reading for reading in readings if len(reading.part.texts) > 1]
        yield from _list_once(_keep_mirrored(larger), larger)


def _leave_out_deciding(group: CandidateGroup, readings: Sequence[_Reading]) -> list[_Reading]:
    """Without the last reading of a judge and text where those before were divided about a cap."""
    by_text: defaultdict[tuple[str, str], list[_Reading]] = defaultdict(list)
    for reading in readings:
        by_text[reading.judgement.judge, reading.part.texts[0]].append(reading)
    deciding = {
        own[-1].number
        for own in by_text.values()
        if is_divided(group.case.rubric, [each.usable.verdicts[0].defects for each in own[:-1]])
    }
    return [reading for reading in readings if reading.number not in deciding]


def _keep_votes(readings: Sequence[_Reading], judgements: Sequence[Judgement]) -> list[_Reading]:
    """Pairs are asked in both orders, one after the other, and where one fails neither counts."""
    usable = {reading.number for reading in readings}
    counted: set[int] = set()
    for asked in _list_questions(judgements, 2):
        answered = [next((number for number in question if number in usable), None) for question in asked]
        for one, other in zip(answered[::2], answered[1::2], strict=False):
            if one is not None and other is not None:
                counted |= {one, other}
    return [reading for reading in readings if reading.number in counted]


def _keep_rounds(readings: Sequence[_Reading], judgements: Sequence[Judgement]) -> list[_Reading]:
    """Each text is asked about in all votes before the next one, and only then about what is divided."""
    counted: set[int] = set()
    for asked in _list_questions(judgements, 1):
        texts = [judgements[question[0]].order for question in asked]
        votes = next((number for number, text in enumerate(texts) if text != texts[0]), len(texts))
        counted.update(index for question in asked[: votes * len(set(texts))] for index in question)
    return [reading for reading in readings if reading.number in counted]


def _list_questions(judgements: Sequence[Judgement], size: int) -> Iterator[list[list[int]]]:
    """By judge, the judgements of each question: what failed is asked once more."""
    by_judge: defaultdict[str, list[list[int]]] = defaultdict(list)
    for index, judgement in enumerate(judgements):
        if judgement.purpose != "score" or len(judgement.order) != size:
            continue
        asked = by_judge[judgement.judge]
        before = judgements[asked[-1][-1]] if asked else None
        is_second = before is not None and before.error is not None and len(asked[-1]) == 1
        if is_second and before is not None and before.order == judgement.order:
            asked[-1].append(index)
        else:
            asked.append([index])
    yield from by_judge.values()


def _list_once(*selections: list[_Reading]) -> Iterator[list[_Reading]]:
    for index, some in enumerate(selections):
        if some and some not in selections[:index]:
            yield some


def _keep_mirrored(readings: Sequence[_Reading]) -> list[_Reading]:
    """Those whose reverse order was read as well, as often."""
    waiting: defaultdict[tuple[str, ...], list[_Reading]] = defaultdict(list)
    mirrored: set[int] = set()
    for reading in readings:
        mirrors = waiting[reading.judgement.order[::-1]]
        if mirrors:
            mirrored |= {mirrors.pop(0).number, reading.number}
        else:
            waiting[reading.judgement.order].append(reading)
    return [reading for reading in readings if reading.number in mirrored]


def _covers(group: CandidateGroup, readings: Sequence[_Reading]) -> bool:
    return {text for reading in readings for text in reading.part.texts} == set(group.texts)


def _split_by_judge(readings: Sequence[_Reading]) -> list[list[_Reading]]:
    split: dict[str, list[_Reading]] = {}
    for reading in readings:
        split.setdefault(reading.judgement.judge, []).append(reading)
    return list(split.values())
