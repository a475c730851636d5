"""Meta-evaluation of a judge: asks it about pairs of a good and a spoilt reply and records its preferences."""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from app.domain.judging import REWARD_CRITERION, Judgement, JudgeRequest, Rubric
from app.domain.rewards import apply_bounds, combine, compute_absolute_score, find_cap
from app.judges.aggregation import Values, average_values
from app.judges.check_evidence import (
    CheckEvidence,
    LetterReading,
    MeasuredPair,
    PairRewards,
    ReadingUsage,
    compute_preference_sign,
)
from app.judges.degradation import DegradationLadder
from app.judges.gates.gate_registry import find_failed_gates, list_confirmed_flags, list_given_hints
from app.judges.gold_cases import GoldCase, build_identical_request
from app.judges.perturbations import PerturbedPair
from app.judges.presentation_order import assign_letters
from app.judges.ranks import mean, normalise_ranks
from app.judges.text_normalisation import Reply
from app.ports.judges import Judge

MOST_IN_FLIGHT: Final = 32
"""Most questions in flight; the judge's own limits may be tighter."""
RETEST_EVERY: Final = 3
LETTERS_COMPARED: Final = 4
"""Copies of one reply in a question about letters."""
_RELATIVE_WEIGHT: Final = 0.5
"""The default of a run."""


@dataclass(frozen=True)
class CheckQuestions:
    """The questions of a check, so that they can be counted before it starts."""

    pairs: tuple[PerturbedPair, ...]
    twice: tuple[GoldCase, ...]
    ladders: tuple[DegradationLadder, ...]
    rubric: Rubric
    votes: int = 1
    retest_every: int = RETEST_EVERY
    """One pair in this many is asked again with the same prompt, for test-retest reliability; 0 for none."""

    @property
    def count(self) -> int:
        return len(self.pairs) * 2 * self.votes + len(self._again) + 2 * len(self.twice) + len(self.ladders) * 2

    @property
    def _again(self) -> tuple[PerturbedPair, ...]:
        return tuple(self.pairs[place] for place in self.retested_places)

    @property
    def retested_places(self) -> range:
        return range(0, len(self.pairs) if self.retest_every else 0, self.retest_every or 1)

    def iterate_requests(self) -> Iterable[JudgeRequest]:
        for pair in self.pairs:
            yield from (
                pair.build_request(self.rubric, clean_first=first, vote=vote)
                for vote in range(self.votes)
                for first in (True, False)
            )
        yield from (pair.build_request(self.rubric, clean_first=True, vote=self.votes) for pair in self._again)
        yield from (build_identical_request(specimen, specimen.clean, self.rubric) for specimen in self.twice)
        yield from (
            ladder.build_request(self.rubric, downwards=down) for ladder in self.ladders for down in (True, False)
        )
        yield from (
            build_identical_request(specimen, specimen.clean, self.rubric, LETTERS_COMPARED) for specimen in self.twice
        )


async def measure_judge(
    judge: Judge, questions: CheckQuestions, asked: Callable[[], None] = lambda: None
) -> CheckEvidence:
    """Asks every question, until a budget is exhausted. `asked` is called after each question. Failed questions are
    counted as failures."""
    gate = asyncio.Semaphore(MOST_IN_FLIGHT)
    stopped: list[str] = []

    async def ask_judge(request: JudgeRequest) -> Judgement | None:
        async with gate:
            judgement = None if stopped else await judge.judge(request)
        if judgement is not None and judgement.failure == "budget":
            stopped.append(judgement.error or "a budget is exhausted")
        asked()
        return judgement

    requests = tuple(questions.iterate_requests())
    put_to = await asyncio.gather(*map(ask_judge, requests))
    unasked = [made is None or made.failure == "budget" for made in put_to]
    judgements = [made for made in put_to if made is not None]
    answers = iter(zip(requests, put_to, strict=True))
    read: list[tuple[tuple[PairRewards, PairRewards] | None, PairRewards | None]] = []
    for pair in questions.pairs:
        heard = [_compute_pair_rewards(pair, *next(answers)) for _ in range(2 * questions.votes)]
        read.append((_average_orders(heard[::2], heard[1::2]), None))
    each = 2 * questions.votes
    whole = [not any(unasked[place * each : (place + 1) * each]) for place in range(len(questions.pairs))]
    for place in questions.retested_places:
        read[place] = (read[place][0], _compute_pair_rewards(questions.pairs[place], *next(answers)))
    firsts = [first for _ in questions.twice if (first := _compute_first_preference(*next(answers))) is not None]
    steps = [step for ladder in questions.ladders for step in _check_steps(ladder, next(answers), next(answers))]
    letters = [letter for _ in questions.twice for letter in _read_letters(*next(answers))]
    costs = [made.cost_usd for made in judgements if made.cost_usd is not None]
    return CheckEvidence(
        pairs=tuple(
            MeasuredPair(
                pair=pair,
                clean_gated=bool(find_failed_gates(Reply(pair.clean), pair.specimen.gates)),
                spoilt_gated=bool(find_failed_gates(Reply(pair.spoilt), pair.specimen.gates)),
                both=both,
                again=again,
            )
            for pair, (both, again), complete in zip(questions.pairs, read, whole, strict=True)
            if complete
        ),
        firsts=tuple(firsts),
        steps=tuple(steps),
        rubric=questions.rubric,
        failures=tuple(made.error for made in judgements if made.error is not None and made.failure != "budget"),
        questions=len(requests) - sum(unasked),
        calls=sum(made.calls for made in judgements),
        cost_usd=math.fsum(costs) if costs else None,
        letters=tuple(letters),
        usage=tuple(map(_measure_usage, put_to)),
        stopped=stopped[0] if stopped else None,
    )


def _average_orders(
    forth: Sequence[PairRewards | None], back: Sequence[PairRewards | None]
) -> tuple[PairRewards, PairRewards] | None:
    """The mean of the votes of each order; None unless every vote is usable."""
    heard = ([each for each in forth if each is not None], [each for each in back if each is not None])
    if any(len(votes) < len(forth) for votes in heard):
        return None
    return _average_rewards(heard[0]), _average_rewards(heard[1])


def _average_rewards(votes: Sequence[PairRewards]) -> PairRewards:
    return PairRewards(
        clean=mean(vote.clean for vote in votes),
        spoilt=mean(vote.spoilt for vote in votes),
        clean_absolute=mean(vote.clean_absolute for vote in votes),
        spoilt_absolute=mean(vote.spoilt_absolute for vote in votes),
        clean_values=average_values([vote.clean_values for vote in votes]),
        spoilt_values=average_values([vote.spoilt_values for vote in votes]),
    )


def _compute_pair_rewards(
    pair: PerturbedPair, request: JudgeRequest, judgement: Judgement | None
) -> PairRewards | None:
    rewards = _compute_rewards(request, judgement)
    if rewards is None:
        return None
    first, second = (rewards[candidate.id] for candidate in request.candidates)
    clean, spoilt = (first, second) if request.candidates[0].text == pair.clean else (second, first)
    return PairRewards(
        clean=clean.reward,
        spoilt=spoilt.reward,
        clean_absolute=clean.absolute,
        spoilt_absolute=spoilt.absolute,
        clean_values=clean.values,
        spoilt_values=spoilt.values,
    )


def _compute_first_preference(request: JudgeRequest, judgement: Judgement | None) -> float | None:
    rewards = _compute_rewards(request, judgement)
    if rewards is None:
        return None
    first, second = (rewards[candidate.id].reward for candidate in request.candidates)
    return 0.5 + compute_preference_sign(first - second) / 2


def _read_letters(request: JudgeRequest, judgement: Judgement | None) -> tuple[LetterReading, ...]:
    rewards = _compute_rewards(request, judgement)
    if rewards is None or judgement is None:
        return ()
    top = judgement.ranking[0]
    return tuple(
        LetterReading(letter, (candidate.id in top) / len(top), rewards[candidate.id].absolute)
        for letter, candidate in zip(assign_letters(request), request.candidates, strict=True)
    )


def _measure_usage(judgement: Judgement | None) -> ReadingUsage | None:
    if judgement is None or judgement.error is not None:
        return None
    return ReadingUsage(judgement.input_tokens, judgement.output_tokens, judgement.cost_usd)


def _check_steps(ladder: DegradationLadder, *answers: tuple[JudgeRequest, Judgement | None]) -> tuple[bool, ...]:
    read = [_compute_rewards(*answer) for answer in answers]
    heard = [rewards for rewards in read if rewards is not None]
    if len(heard) < len(answers):
        return ()
    ids = {candidate.text: candidate.id for candidate in answers[0][0].candidates}
    earned = [mean(rewards[ids[text]].reward for rewards in heard) for text in ladder.rungs]
    return tuple(compute_preference_sign(worse - better) <= 0 for better, worse in pairwise(earned))


@dataclass(frozen=True)
class _CandidateReward:
    reward: float
    absolute: float
    values: Values


def _compute_rewards(request: JudgeRequest, judgement: Judgement | None) -> dict[str, _CandidateReward] | None:
    """What each candidate earns from this judgement alone, with caps, bounds and confirmed hints."""
    if judgement is None or judgement.error is not None:
        return None
    ranks = normalise_ranks(judgement.ranking)
    told = {candidate.id: list_given_hints(candidate) for candidate in request.candidates}
    found: dict[str, _CandidateReward] = {}
    for verdict in judgement.verdicts:
        gate = 0.0 if list_confirmed_flags(told[verdict.candidate], verdict.defects, request.rubric) else 1.0
        values = apply_bounds(request.rubric, verdict)
        told_absolute = compute_absolute_score(request.rubric, values)
        absolute = gate * (verdict.scores.get(REWARD_CRITERION) or 0.0 if verdict.reward is not None else told_absolute)
        cap = find_cap(request.rubric, verdict.defects)
        reward = combine(gate, absolute, ranks[verdict.candidate], _RELATIVE_WEIGHT, cap)
        found[verdict.candidate] = _CandidateReward(reward, absolute, values)
    return found
