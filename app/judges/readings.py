"""One judge before one group: mirrored pairs of orders, and what they amount to."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

from app.domain.judging import Candidate, Case, Judgement, JudgeRequest, Verdict
from app.judges.agreement import NEUTRAL, kendall, mean, mean_kendall, normalised_ranks, top_is_close
from app.judges.orders import mirrored_orders, opaque_ids
from app.judges.reading import visible_text
from app.ports import Judge
from app.rewards import absolute_of, criteria_of

DISAGREEMENT: Final = 0.3
"""Kendall's tau below which two readings contradict one another."""
BY_POSITION: Final = 0.5
"""Kendall's tau by slot from which a judge is taken to follow position, if it is above tau by candidate."""

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class Group:
    """Distinct texts that are judged together, in an order that does not depend on the request's."""

    case: Case
    texts: tuple[str, ...]

    @classmethod
    def of(cls, case: Case, texts: Sequence[str]) -> "Group":
        return cls(case, tuple(sorted(set(texts))))

    @cached_property
    def ids(self) -> Mapping[str, str]:
        return opaque_ids(self.case.key, self.texts)

    @cached_property
    def own(self) -> Mapping[str, str]:
        """What the models themselves wrote, where texts are transcripts of episodes."""
        written = ("\n".join(visible_text(line.text) for line in lines) for lines in self.case.lines)
        return {visible_text(text): own for text, own in zip(self.case.candidates, written, strict=False)}

    def request(self, order: Sequence[str]) -> JudgeRequest:
        return JudgeRequest(
            rubric=self.case.rubric,
            document=self.case.document,
            probes=self.case.probes,
            candidates=tuple(Candidate(id=self.ids[text], text=text, own=self.own.get(text, "")) for text in order),
        )


@dataclass(frozen=True)
class Reading:
    """A usable judgement. Lists are over the group's texts."""

    verdicts: tuple[Verdict, ...]
    standings: tuple[float, ...]
    absolutes: tuple[float, ...]
    slots: tuple[int, ...]
    """Where each text stood in the presentation."""

    def by_slot(self, values: Sequence[float]) -> tuple[float, ...]:
        return tuple(value for _, value in sorted(zip(self.slots, values, strict=True)))


@dataclass(frozen=True)
class View:
    """What one judge makes of a group, all its readings taken together. `relative` is null for a lone text."""

    judge: str
    readings: tuple[Reading, ...]
    values: tuple[Values, ...]
    absolutes: tuple[float, ...]
    relative: tuple[float, ...] | None
    follows_position: bool = False
    agrees: bool = True
    """False when its readings contradict one another: `relative` is then the same for all."""


@dataclass(frozen=True)
class Report:
    """`view` is null when the judge failed; `error` then says how."""

    judge: str
    judgements: tuple[Judgement, ...]
    view: View | None
    error: str = ""


async def read_group(judge: Judge, group: Group) -> Report:
    """A lone text is read once. More are read in a shuffled order and its reverse; where those two leave doubt, and
    another order exists, in a second such pair. A reading without its mirror counts for nothing."""
    if len(group.texts) == 1:
        judgement = await judge.judge(group.request(group.texts))
        return _report(judge, group, (judgement,), (judgement,))
    first = await _pair(judge, group, 0)
    readings = _readings(group, first)
    if readings is None or len(group.texts) == 2 or not _in_doubt(readings):
        return _report(judge, group, first, first)
    second = await _pair(judge, group, 1)
    usable = first if _readings(group, second) is None else first + second
    return _report(judge, group, first + second, usable)


async def _pair(judge: Judge, group: Group, pair: int) -> tuple[Judgement, ...]:
    orders = mirrored_orders(group.case.key, group.texts, pair)
    return tuple(await asyncio.gather(*(judge.judge(group.request(order)) for order in orders)))


def _report(judge: Judge, group: Group, made: tuple[Judgement, ...], used: tuple[Judgement, ...]) -> Report:
    readings = _readings(group, used)
    if readings is None:
        errors = dict.fromkeys(filter(None, (_fault(group, judgement) for judgement in used)))
        return Report(judge.name, made, None, "; ".join(errors))
    return Report(judge.name, made, _view(judge.name, group, readings))


def _readings(group: Group, judgements: Sequence[Judgement]) -> tuple[Reading, ...] | None:
    """None unless every judgement is usable."""
    if any(_fault(group, judgement) for judgement in judgements):
        return None
    return tuple(_reading(group, judgement) for judgement in judgements)


def _fault(group: Group, judgement: Judgement) -> str:
    """Why a judgement cannot be used; empty when it can. Judges check their answers, but not all judges are ours."""
    if judgement.error is not None:
        return judgement.error or "failed without a word"
    expected = sorted(group.ids.values())
    if sorted(verdict.candidate for verdict in judgement.verdicts) != expected:
        return "did not judge every candidate exactly once"
    if sorted(chain.from_iterable(judgement.ranking)) != expected:
        return "did not rank every candidate exactly once"
    if sorted(judgement.order) != expected:
        return "does not say in which order it read"
    return ""


def _reading(group: Group, judgement: Judgement) -> Reading:
    verdicts = {verdict.candidate: verdict for verdict in judgement.verdicts}
    standings = normalised_ranks(judgement.ranking)
    ids = [group.ids[text] for text in group.texts]
    rubric = group.case.rubric
    return Reading(
        verdicts=tuple(verdicts[name] for name in ids),
        standings=tuple(standings[name] for name in ids),
        absolutes=tuple(absolute_of(criteria_of(rubric, verdicts[name].scores)) for name in ids),
        slots=tuple(judgement.order.index(name) for name in ids),
    )


def _in_doubt(readings: Sequence[Reading]) -> bool:
    standings = [reading.standings for reading in readings]
    return mean_kendall(standings) < DISAGREEMENT or top_is_close(standings)


def _view(judge: str, group: Group, readings: tuple[Reading, ...]) -> View:
    values = mean_values([[verdict.scores for verdict in reading.verdicts] for reading in readings])
    if len(group.texts) == 1:
        return View(judge, readings, values, _absolutes(group, values), None)
    follows = _follow_position(readings, [reading.standings for reading in readings])
    if follows and _follow_position(readings, [reading.absolutes for reading in readings]):
        # its scores are the slots' as well: what is left of them is the level of the whole group
        level = mean_values([[each] for each in values])[0]
        values = (level,) * len(values)
    agrees = not follows and _agreement(readings) >= DISAGREEMENT
    means = tuple(mean(column) for column in zip(*(reading.standings for reading in readings), strict=True))
    return View(
        judge=judge,
        readings=readings,
        values=values,
        absolutes=_absolutes(group, values),
        relative=means if agrees else (NEUTRAL,) * len(means),
        follows_position=follows,
        agrees=agrees,
    )


def _absolutes(group: Group, values: Sequence[Values]) -> tuple[float, ...]:
    return tuple(absolute_of(criteria_of(group.case.rubric, each)) for each in values)


def _follow_position(readings: Sequence[Reading], lists: Sequence[Sequence[float]]) -> bool:
    by_slot = mean_kendall([reading.by_slot(values) for reading, values in zip(readings, lists, strict=True)])
    return by_slot >= BY_POSITION and by_slot > mean_kendall(lists)


def _agreement(readings: Sequence[Reading]) -> float:
    """Of the two readings of a pair; with two pairs of the pairs' means, in which a slope over slots cancels."""
    standings = [reading.standings for reading in readings]
    if len(standings) == 2:
        return kendall(*standings)
    pairs = [
        [mean(column) for column in zip(*standings[start : start + 2], strict=True)]
        for start in range(0, len(standings), 2)
    ]
    return mean_kendall(pairs)


def mean_values(readings: Sequence[Sequence[Values]]) -> tuple[Values, ...]:
    """Per text and criterion the mean over readings; null only where no reading has a value."""
    return tuple(_mean_value(column) for column in zip(*readings, strict=True))


def _mean_value(values: Sequence[Values]) -> Values:
    names = dict.fromkeys(chain.from_iterable(values))
    known = {name: [value for each in values if (value := each.get(name)) is not None] for name in names}
    return {name: mean(listed) if listed else None for name, listed in known.items()}
