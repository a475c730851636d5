"""Which stored readings of a group were put together, and how: nobody wrote it down when they were.

Each way that modes put readings together is offered; `app.judges.explanation` keeps the one that gives what is stored.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.domain.judging import Judgement
from app.judges.aggregation import CandidateGroup, UsableJudgement
from app.judges.capping_defects import is_divided


@dataclass(frozen=True)
class PlacedReading:
    """A usable judgement with its `place` among all."""

    place: int
    judgement: Judgement
    part: CandidateGroup
    usable: UsableJudgement

    @property
    def gives_reward(self) -> bool:
        return all(verdict.reward is not None for verdict in self.usable.verdicts)


def split_by_judge(readings: Sequence[PlacedReading]) -> list[list[PlacedReading]]:
    split: dict[str, list[PlacedReading]] = {}
    for reading in readings:
        split.setdefault(reading.judgement.judge, []).append(reading)
    return list(split.values())


def arrange_readings(
    group: CandidateGroup, readings: Sequence[PlacedReading], judgements: Sequence[Judgement]
) -> Iterator[list[list[PlacedReading]]]:
    """The ways in which readings by the rubric may have been put together, the likeliest first. A further reading for
    divided defects is in none of the parts, and neither is one whose mirror failed."""
    if not readings:
        yield []
        return
    for some in _select(group, readings, judgements):
        apart = split_by_judge(some)
        if all(_covers(group, own) for own in apart):
            yield apart
        if len(apart) > 1 and _covers(group, some):
            yield [list(some)]


def _select(
    group: CandidateGroup, readings: Sequence[PlacedReading], judgements: Sequence[Judgement]
) -> Iterator[list[PlacedReading]]:
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


def _leave_out_deciding(group: CandidateGroup, readings: Sequence[PlacedReading]) -> list[PlacedReading]:
    """Without the last reading of a judge and text where those before were divided about a cap."""
    by_text: defaultdict[tuple[str, str], list[PlacedReading]] = defaultdict(list)
    for reading in readings:
        by_text[reading.judgement.judge, reading.part.texts[0]].append(reading)
    deciding = {
        own[-1].place
        for own in by_text.values()
        if is_divided(group.case.rubric, [each.usable.verdicts[0].defects for each in own[:-1]])
    }
    return [reading for reading in readings if reading.place not in deciding]


def _keep_votes(readings: Sequence[PlacedReading], judgements: Sequence[Judgement]) -> list[PlacedReading]:
    """Pairs are asked in both orders, one after the other, and where one fails neither counts."""
    usable = {reading.place for reading in readings}
    kept: set[int] = set()
    for asked in _list_questions(judgements, 2):
        answered = [next((place for place in question if place in usable), None) for question in asked]
        for one, other in zip(answered[::2], answered[1::2], strict=False):
            if one is not None and other is not None:
                kept |= {one, other}
    return [reading for reading in readings if reading.place in kept]


def _keep_rounds(readings: Sequence[PlacedReading], judgements: Sequence[Judgement]) -> list[PlacedReading]:
    """Each text is asked about in all votes before the next one, and only then about what is divided."""
    kept: set[int] = set()
    for asked in _list_questions(judgements, 1):
        texts = [judgements[question[0]].order for question in asked]
        votes = next((number for number, text in enumerate(texts) if text != texts[0]), len(texts))
        kept.update(place for question in asked[: votes * len(set(texts))] for place in question)
    return [reading for reading in readings if reading.place in kept]


def _list_questions(judgements: Sequence[Judgement], size: int) -> Iterator[list[list[int]]]:
    """By judge, the judgements of each question: what failed is asked once more."""
    by_judge: defaultdict[str, list[list[int]]] = defaultdict(list)
    for place, judgement in enumerate(judgements):
        if judgement.purpose != "score" or len(judgement.order) != size:
            continue
        asked = by_judge[judgement.judge]
        before = judgements[asked[-1][-1]] if asked else None
        is_second = before is not None and before.error is not None and len(asked[-1]) == 1
        if is_second and before is not None and before.order == judgement.order:
            asked[-1].append(place)
        else:
            asked.append([place])
    yield from by_judge.values()


def _list_once(*selections: list[PlacedReading]) -> Iterator[list[PlacedReading]]:
    for place, some in enumerate(selections):
        if some and some not in selections[:place]:
            yield some


def _keep_mirrored(readings: Sequence[PlacedReading]) -> list[PlacedReading]:
    """Those whose reverse order was read as well, as often."""
    waiting: defaultdict[tuple[str, ...], list[PlacedReading]] = defaultdict(list)
    kept: set[int] = set()
    for reading in readings:
        mirrors = waiting[reading.judgement.order[::-1]]
        if mirrors:
            kept |= {mirrors.pop(0).place, reading.place}
        else:
            waiting[reading.judgement.order].append(reading)
    return [reading for reading in readings if reading.place in kept]


def _covers(group: CandidateGroup, readings: Sequence[PlacedReading]) -> bool:
    return {text for reading in readings for text in reading.part.texts} == set(group.texts)
