"""Meta-evaluation of a judge: asks it about pairs of a good and a spoilt reply and records its preferences."""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from app.domain.judging import Judgement, JudgeRequest, Rubric
from app.domain.rewards import absolute_of, bounded, cap_of, combine, criteria_of
from app.judges.corruption import Pair, Specimen, identical_request
from app.judges.gates.registry import confirmed, failed_gates, told_of
from app.judges.ladders import Ladder
from app.judges.reading import Reply
from app.judges.readings import mean, normalised_ranks
from app.ports.judges import Judge

AT_ONCE: Final = 32
"""Most questions in flight; the judge's own limits may be tighter."""
RETEST_EVERY: Final = 3
"""One pair in this many is asked again with the same prompt, for test-retest reliability."""
_SAME: Final = 1e-6
_RELATIVE_WEIGHT: Final = 0.5
"""The default of a run."""


@dataclass(frozen=True)
class Heard:
    """One judgement of a pair: each reply's reward, and its absolute score."""

    clean: float
    spoilt: float
    clean_absolute: float
    spoilt_absolute: float

    @property
    def side(self) -> int:
        return preference(self.clean - self.spoilt)


@dataclass(frozen=True)
class Measured:
    """The results of one pair. `both` holds one per order; None when a judgement failed."""

    pair: Pair
    clean_gated: bool
    spoilt_gated: bool
    both: tuple[Heard, Heard] | None
    again: Heard | None = None

    @property
    def side(self) -> int | None:
        """1 when the clean reply is preferred over both orders, -1 for the spoilt one, 0 for a tie."""
        if self.both is None:
            return None
        return preference(mean(heard.clean for heard in self.both) - mean(heard.spoilt for heard in self.both))

    @property
    def side_behind_gates(self) -> int | None:
        if self.clean_gated or self.spoilt_gated:
            return int(self.spoilt_gated) - int(self.clean_gated)
        return self.side


@dataclass(frozen=True)
class Evidence:
    """`firsts`: for pairs of equal replies, the preference for the first one: 1, 0.5 or 0."""

    pairs: tuple[Measured, ...]
    firsts: tuple[float, ...]
    steps: tuple[bool, ...]
    """Per degradation step, over both orders: whether the reply with one more fault earned no more."""
    failures: tuple[str, ...]
    questions: int
    calls: int
    cost_usd: float | None
    stopped: str | None = None
    """Why the check stopped early. Then `pairs` holds only those that were asked in both orders."""


@dataclass(frozen=True)
class Questions:
    """The questions of a check, so that they can be counted before it starts."""

    pairs: tuple[Pair, ...]
    twice: tuple[Specimen, ...]
    ladders: tuple[Ladder, ...]
    rubric: Rubric
    votes: int = 1

    @property
    def count(self) -> int:
        return len(self.pairs) * 2 * self.votes + len(self._again) + len(self.twice) + len(self.ladders) * 2

    @property
    def _again(self) -> tuple[Pair, ...]:
        return self.pairs[::RETEST_EVERY]

    def each(self) -> Iterable[JudgeRequest]:
        for pair in self.pairs:
            yield from (
                pair.request(self.rubric, clean_first=first, vote=vote)
                for vote in range(self.votes)
                for first in (True, False)
            )
        yield from (pair.request(self.rubric, clean_first=True, vote=self.votes) for pair in self._again)
        yield from (identical_request(specimen, specimen.clean, self.rubric) for specimen in self.twice)
        yield from (ladder.request(self.rubric, downwards=down) for ladder in self.ladders for down in (True, False))


async def measure(judge: Judge, questions: Questions, asked: Callable[[], None] = lambda: None) -> Evidence:
    """Asks every question, until a budget is exhausted. `asked` is called after each question. Failed questions are
    counted as failures."""
    gate = asyncio.Semaphore(AT_ONCE)
    stopped: list[str] = []

    async def put(request: JudgeRequest) -> Judgement | None:
        async with gate:
            judgement = None if stopped else await judge.judge(request)
        if judgement is not None and judgement.failure == "budget":
            stopped.append(judgement.error or "a budget is exhausted")
        asked()
        return judgement

    requests = tuple(questions.each())
    put_to = await asyncio.gather(*map(put, requests))
    unasked = [made is None or made.failure == "budget" for made in put_to]
    judgements = [made for made in put_to if made is not None]
    answers = iter(zip(requests, put_to, strict=True))
    read: list[tuple[tuple[Heard, Heard] | None, Heard | None]] = []
    for pair in questions.pairs:
        heard = [_heard(pair, *next(answers)) for _ in range(2 * questions.votes)]
        read.append((_both(heard[::2], heard[1::2]), None))
    each = 2 * questions.votes
    whole = [not any(unasked[place * each : (place + 1) * each]) for place in range(len(questions.pairs))]
    for place in range(0, len(questions.pairs), RETEST_EVERY):
        read[place] = (read[place][0], _heard(questions.pairs[place], *next(answers)))
    firsts = [first for _ in questions.twice if (first := _first(*next(answers))) is not None]
    steps = [step for ladder in questions.ladders for step in _steps(ladder, next(answers), next(answers))]
    costs = [made.cost_usd for made in judgements if made.cost_usd is not None]
    return Evidence(
        pairs=tuple(
            Measured(
                pair=pair,
                clean_gated=bool(failed_gates(Reply(pair.clean), pair.specimen.gates)),
                spoilt_gated=bool(failed_gates(Reply(pair.spoilt), pair.specimen.gates)),
                both=both,
                again=again,
            )
            for pair, (both, again), complete in zip(questions.pairs, read, whole, strict=True)
            if complete
        ),
        firsts=tuple(firsts),
        steps=tuple(steps),
        failures=tuple(made.error for made in judgements if made.error is not None and made.failure != "budget"),
        questions=len(requests) - sum(unasked),
        calls=sum(made.calls for made in judgements),
        cost_usd=math.fsum(costs) if costs else None,
        stopped=stopped[0] if stopped else None,
    )


def preference(difference: float) -> int:
    return 0 if abs(difference) < _SAME else (1 if difference > 0 else -1)


def _both(forth: Sequence[Heard | None], back: Sequence[Heard | None]) -> tuple[Heard, Heard] | None:
    """The mean of the votes of each order; None unless every vote is usable."""
    heard = ([each for each in forth if each is not None], [each for each in back if each is not None])
    if any(len(votes) < len(forth) for votes in heard):
        return None
    return _mean_of(heard[0]), _mean_of(heard[1])


def _mean_of(votes: Sequence[Heard]) -> Heard:
    return Heard(
        clean=mean(vote.clean for vote in votes),
        spoilt=mean(vote.spoilt for vote in votes),
        clean_absolute=mean(vote.clean_absolute for vote in votes),
        spoilt_absolute=mean(vote.spoilt_absolute for vote in votes),
    )


def _heard(pair: Pair, request: JudgeRequest, judgement: Judgement | None) -> Heard | None:
    rewards = _rewards(request, judgement)
    if rewards is None:
        return None
    first, second = (rewards[candidate.id] for candidate in request.candidates)
    clean, spoilt = (first, second) if request.candidates[0].text == pair.clean else (second, first)
    return Heard(clean=clean[0], spoilt=spoilt[0], clean_absolute=clean[1], spoilt_absolute=spoilt[1])


def _first(request: JudgeRequest, judgement: Judgement | None) -> float | None:
    rewards = _rewards(request, judgement)
    if rewards is None:
        return None
    first, second = (rewards[candidate.id][0] for candidate in request.candidates)
    return 0.5 + preference(first - second) / 2


def _steps(ladder: Ladder, *answers: tuple[JudgeRequest, Judgement | None]) -> tuple[bool, ...]:
    read = [_rewards(*answer) for answer in answers]
    heard = [rewards for rewards in read if rewards is not None]
    if len(heard) < len(answers):
        return ()
    ids = {candidate.text: candidate.id for candidate in answers[0][0].candidates}
    earned = [mean(rewards[ids[text]][0] for rewards in heard) for text in ladder.rungs]
    return tuple(preference(worse - better) <= 0 for better, worse in pairwise(earned))


def _rewards(request: JudgeRequest, judgement: Judgement | None) -> dict[str, tuple[float, float]] | None:
    """Per candidate the reward and absolute score from this judgement alone, with caps, bounds and confirmed hints."""
    if judgement is None or judgement.error is not None:
        return None
    ranks = normalised_ranks(judgement.ranking)
    told = {candidate.id: told_of(candidate) for candidate in request.candidates}
    found: dict[str, tuple[float, float]] = {}
    for verdict in judgement.verdicts:
        gate = 0.0 if confirmed(told[verdict.candidate], verdict.defects, request.rubric) else 1.0
        absolute = gate * absolute_of(criteria_of(request.rubric, bounded(request.rubric, verdict)))
        cap = cap_of(request.rubric, verdict.defects)
        reward = combine(gate, absolute, ranks[verdict.candidate], _RELATIVE_WEIGHT, cap)
        found[verdict.candidate] = (reward, absolute)
    return found
