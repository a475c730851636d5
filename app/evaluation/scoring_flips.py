"""What another rule changes about groups that were scored: pairs, best replies and signs of advantages that flip."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Final

from app.domain.values import FiniteNumber, Frozen
from app.evaluation.label_agreement import compute_correlation
from app.evaluation.resampling import MeanEstimate, Resampler

RESAMPLES: Final = 1_000
MOST_STEP_ROWS: Final = 12
"""More policy steps than that are put together into so many ranges of about as many groups."""
_SAME: Final = 1e-9
_FEWEST_FOR_CORRELATION: Final = 3

Rewards = Sequence[float | None]
"""Rewards of one group, in the order of its completions; None for a missing reward."""


@dataclass(frozen=True)
class RescoredGroup:
    group_id: str
    original: tuple[float | None, ...]
    rescored: tuple[float | None, ...]
    label: str | None = None
    step: int | None = None


class GroupFlips(Frozen):
    """What flipped in one group. Completions are named by their places in it."""

    group_id: str
    label: str | None
    step: int | None
    pairs: tuple[tuple[int, int], ...]
    """The first was better and is worse now."""
    best: tuple[tuple[int, ...], tuple[int, ...]] | None
    """The best before and now, where none is among both."""
    signs: tuple[int, ...]
    """Completions that were above the group's mean and are below it now, or the other way round."""


class FlipFigures(Frozen):
    """Figures over groups with two completions or more that have both rewards. Groups weigh the same, and are what the
    95 % intervals resample."""

    name: str
    groups: int
    pairs: int
    """With different rewards before."""
    pairs_flipped: int
    pairs_tied: int
    """With equal rewards now."""
    flipped_share: MeanEstimate
    """Of a group's pairs that differed before, those in the other order now."""
    best_changed: MeanEstimate
    """Share of the groups in which no reply is best in both."""
    signs_flipped: MeanEstimate
    """Of a group's completions off the mean before, those on its other side now."""
    mean_shift: MeanEstimate
    """A group's mean reward now, minus the one before."""
    rank_correlation: MeanEstimate
    """Spearman's, within groups of three or more with different rewards before; 0 where all are equal now."""


class FlipReport(Frozen):
    completions: int
    """With both rewards."""
    spearman: FiniteNumber | None
    """Of the rewards of all groups together; null where all are equal in one of the scorings."""
    mean_difference: FiniteNumber | None
    """Mean absolute difference of rewards."""
    overall: FlipFigures
    labels: tuple[FlipFigures, ...]
    """By label, such as the character."""
    steps: tuple[FlipFigures, ...]
    """By policy step, or by ranges of steps where there are many."""
    flips: tuple[GroupFlips, ...]
    """Groups in which anything flipped."""


@dataclass(frozen=True)
class _Pairing:
    """The completions of a group that have both rewards."""

    group: RescoredGroup
    places: tuple[int, ...]
    before: tuple[float, ...]
    now: tuple[float, ...]

    @property
    def differing(self) -> list[tuple[int, int]]:
        """Indexes of pairs that differed before, the better one first."""
        pairs = combinations(range(len(self.places)), 2)
        ordered = ((a, b) if self.before[a] > self.before[b] else (b, a) for a, b in pairs)
        return [(a, b) for a, b in ordered if self.before[a] - self.before[b] > _SAME]

    @property
    def flipped(self) -> list[tuple[int, int]]:
        return [(a, b) for a, b in self.differing if self.now[b] - self.now[a] > _SAME]

    @property
    def tied(self) -> int:
        return sum(abs(self.now[a] - self.now[b]) <= _SAME for a, b in self.differing)

    @property
    def best(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return _find_best(self.before), _find_best(self.now)

    @property
    def best_changed(self) -> bool:
        before, now = self.best
        return set(before).isdisjoint(now)

    @property
    def signs(self) -> list[tuple[int, int]]:
        """Of the advantages before and now."""
        return list(zip(_list_signs(self.before), _list_signs(self.now), strict=True))


def report_flips(groups: Iterable[RescoredGroup], seed: int = 0) -> FlipReport:
    paired = [_pair_rewards(group) for group in groups]
    before = [reward for one in paired for reward in one.before]
    now = [reward for one in paired for reward in one.now]
    comparable = [one for one in paired if len(one.places) > 1]
    resampler = Resampler(seed, RESAMPLES)
    by_label: defaultdict[str, list[_Pairing]] = defaultdict(list)
    for one in comparable:
        if one.group.label is not None:
            by_label[one.group.label].append(one)
    return FlipReport(
        completions=len(before),
        spearman=_compute_spearman(before, now) if len(before) > 1 and _differ(before) and _differ(now) else None,
        mean_difference=fmean(abs(a - b) for a, b in zip(before, now, strict=True)) if before else None,
        overall=_build_figures("all", comparable, resampler),
        labels=tuple(_build_figures(label, by_label[label], resampler) for label in sorted(by_label)),
        steps=tuple(_build_figures(name, some, resampler) for name, some in _split_by_step(comparable)),
        flips=tuple(flips for one in comparable if (flips := _find_flips(one)) is not None),
    )


def _pair_rewards(group: RescoredGroup) -> _Pairing:
    both = [
        (place, before, now)
        for place, (before, now) in enumerate(zip(group.original, group.rescored, strict=True))
        if before is not None and now is not None
    ]
    return (
        _Pairing(group, *(tuple(column) for column in zip(*both, strict=True))) if both else _Pairing(group, (), (), ())
    )


def _build_figures(name: str, groups: Sequence[_Pairing], resampler: Resampler) -> FlipFigures:
    compared = [one for one in groups if one.differing]
    moved = [[now == -before for before, now in one.signs if before] for one in groups]
    ranked = [one for one in groups if len(one.places) >= _FEWEST_FOR_CORRELATION and _differ(one.before)]
    return FlipFigures(
        name=name,
        groups=len(groups),
        pairs=sum(len(one.differing) for one in groups),
        pairs_flipped=sum(len(one.flipped) for one in groups),
        pairs_tied=sum(one.tied for one in groups),
        flipped_share=resampler.estimate([len(one.flipped) / len(one.differing) for one in compared]),
        best_changed=resampler.estimate([float(one.best_changed) for one in groups]),
        signs_flipped=resampler.estimate([fmean(flipped) for flipped in moved if flipped]),
        mean_shift=resampler.estimate([fmean(one.now) - fmean(one.before) for one in groups], least=-1.0),
        rank_correlation=resampler.estimate([_compute_spearman(one.before, one.now) for one in ranked], least=-1.0),
    )


def _find_flips(one: _Pairing) -> GroupFlips | None:
    signs = tuple(place for place, (before, now) in zip(one.places, one.signs, strict=True) if before * now < 0)
    pairs = tuple((one.places[a], one.places[b]) for a, b in one.flipped)
    if not (pairs or signs or one.best_changed):
        return None
    before, now = (tuple(one.places[at] for at in best) for best in one.best)
    best = (before, now) if one.best_changed else None
    group = one.group
    return GroupFlips(group_id=group.group_id, label=group.label, step=group.step, pairs=pairs, best=best, signs=signs)


def _split_by_step(groups: Sequence[_Pairing]) -> list[tuple[str, list[_Pairing]]]:
    by_step: defaultdict[int, list[_Pairing]] = defaultdict(list)
    for one in groups:
        if one.group.step is not None:
            by_step[one.group.step].append(one)
    known = sum(map(len, by_step.values()))
    rows: list[tuple[list[int], list[_Pairing]]] = []
    seen = 0
    for step in sorted(by_step):
        row = seen * MOST_STEP_ROWS // known if len(by_step) > MOST_STEP_ROWS else len(rows)
        if row >= len(rows):
            rows.append(([], []))
        rows[-1][0].append(step)
        rows[-1][1].extend(by_step[step])
        seen += len(by_step[step])
    return [(_name_steps(steps), some) for steps, some in rows]


def _name_steps(steps: Sequence[int]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def _find_best(rewards: Sequence[float]) -> tuple[int, ...]:
    highest = max(rewards)
    return tuple(place for place, reward in enumerate(rewards) if highest - reward <= _SAME)


def _list_signs(rewards: Sequence[float]) -> list[int]:
    mean = fmean(rewards)
    return [0 if abs(reward - mean) <= _SAME else int(math.copysign(1, reward - mean)) for reward in rewards]


def _differ(rewards: Sequence[float]) -> bool:
    return max(rewards) - min(rewards) > _SAME


def _compute_spearman(before: Sequence[float], now: Sequence[float]) -> float:
    return compute_correlation(_compute_ranks(before), _compute_ranks(now)) or 0.0


def _compute_ranks(values: Sequence[float]) -> list[float]:
    """Ties share a mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] - values[order[first]] <= _SAME:
            last += 1
        for place in order[first : last + 1]:
            ranks[place] = (first + last) / 2
        first = last + 1
    return ranks
