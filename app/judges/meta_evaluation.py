"""The check of a judge: it is asked about good and spoilt replies, and figures say how far it can be trusted.

Each pair is read in both orders, some of them once more in the same order. Ladders of a good reply with one, two and
three faults show whether a further fault can pay; copies of one reply show a preference for places and letters. A share
has Wilson's interval. A figure passes by its value, in a short check by its interval.
"""

import math
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from app.domain.judge_measurements import MeasuredFigure
from app.domain.judging import (
    REWARD_CRITERION,
    Judgement,
    JudgeRequest,
    Rubric,
    RubricLabel,
    apply_bounds,
    compute_absolute_score,
    find_cap,
)
from app.domain.scores import combine
from app.domain.values import FiniteNumber, Frozen, Proportion, compute_intraclass_correlation
from app.judges.aggregation import Values, average_values, mean, normalise_ranks
from app.judges.check_pace import PacedAsking
from app.judges.gates import list_confirmed_flags, list_given_hints
from app.judges.gold_cases import (
    MUTATIONS,
    CheckEvidence,
    GoldCase,
    LetterReading,
    MeasuredPair,
    PairRewards,
    PerturbedPair,
    Templates,
    build_check_request,
    build_identical_request,
    compute_preference_sign,
)
from app.judges.prompts import build_prompt
from app.judges.verdicts import assign_letters, derive_opaque_ids
from app.ports.judges import AnsweringJudge, Judge

# Ladders.

STEPS: Final = 3


@dataclass(frozen=True)
class _DegradationLadder:
    """`rungs`: the good reply first, then each with one more fault."""

    specimen: GoldCase
    rungs: tuple[str, ...]

    def build_request(self, rubric: Rubric, *, downwards: bool) -> JudgeRequest:
        """All rungs at once. The ids are opaque and the same in both orders."""
        ids = derive_opaque_ids(f"ladder {self.specimen.cast.scene.id}", self.rungs)
        texts = self.rungs if downwards else self.rungs[::-1]
        return build_check_request(
            self.specimen, rubric, tuple(self.specimen.build_candidate(ids[text], text) for text in texts)
        )


def build_ladders(cases: Sequence[GoldCase], templates: Templates, seed: int = 0) -> tuple[_DegradationLadder, ...]:
    """One for each case that admits enough faults. The same seed gives the same ladders."""
    built = (_build_ladder(specimen, templates, seed) for specimen in cases)
    return tuple(ladder for ladder in built if len(ladder.rungs) == STEPS + 1)


def _build_ladder(specimen: GoldCase, templates: Templates, seed: int) -> _DegradationLadder:
    chance = random.Random(f"{seed} ladder {specimen.cast.scene.id}")  # noqa: S311
    adding = [mutation for mutation in MUTATIONS if mutation.adds]
    rungs = [specimen.clean]
    for mutation in chance.sample(adding, len(adding)):
        if len(rungs) > STEPS:
            break
        worse = mutation.spoil(replace(specimen, clean=rungs[-1]), templates, chance)
        if worse is not None and worse not in rungs:
            rungs.append(worse)
    return _DegradationLadder(specimen, tuple(rungs))


# Questions and answers.

_MOST_AT_ONCE: Final = 32
"""Questions in flight; the judge's pace may be slower."""
_RETEST_EVERY: Final = 3
_LETTERS_COMPARED: Final = 4
"""Copies of one reply in a question about letters."""
_RELATIVE_WEIGHT: Final = 0.5
"""The default of a run."""


@dataclass(frozen=True)
class CheckQuestions:
    """The questions of a check, so that they can be counted before it starts."""

    pairs: tuple[PerturbedPair, ...]
    twice: tuple[GoldCase, ...]
    ladders: tuple[_DegradationLadder, ...]
    rubric: Rubric
    votes: int = 1
    retest_every: int = _RETEST_EVERY
    """One pair in this many is asked again with the same prompt, for test-retest reliability; 0 for none."""

    @property
    def count(self) -> int:
        return len(self.pairs) * 2 * self.votes + len(self._again) + 2 * len(self.twice) + len(self.ladders) * 2

    @property
    def _again(self) -> tuple[PerturbedPair, ...]:
        return tuple(self.pairs[index] for index in self.retested)

    @property
    def retested(self) -> range:
        """The indexes of pairs that are asked again."""
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
            build_identical_request(specimen, specimen.clean, self.rubric, _LETTERS_COMPARED) for specimen in self.twice
        )


# Whether a judge is shown whole prompts: some servers cut at their window, and answer as if they had read it all.

_FILLER: Final = "Line {} of this text says nothing that matters.\n"


def measure_longest(questions: CheckQuestions) -> int:
    """Bytes of the longest prompt: of other scripts than Latin a letter has several, and more tokens."""
    prompts = map(build_prompt, questions.iterate_requests())
    return max(len(prompt.system.encode()) + len(prompt.user.encode()) for prompt in prompts)


def build_marked_text(size: int, first: str, last: str) -> str:
    """Of at least so many bytes, with a word to be read back at each end."""
    begin = f"The first word to remember is {first}.\n"
    end = (
        f'The last word to remember is {last}.\nAnswer with {{"first": …, "last": …}}, where … are the first and the '
        "last word to remember, exactly as they are written in this text."
    )
    lines, left, number = [begin], size - len(begin) - len(end.encode()), 0
    while left > 0:
        number += 1
        lines.append(_FILLER.format(number))
        left -= len(lines[-1])
    return "".join((*lines, end))


async def find_reading_fault(judge: AnsweringJudge, size: int) -> str | None:
    """Why a judge does not read back two words, and what to do. None where it reads them back from three lines and from
    a text of so many bytes, and where it does not answer at all. The three lines come first: a small model fails there
    within seconds, and may take minutes to read the whole."""
    short = await _read_words_back(judge, 0)
    if short is None:
        return None
    if short:
        return (
            "the model does not do as it is told: it does not read back two words from a prompt of three lines. Take a "
            "larger model"
        )
    if not (unread := await _read_words_back(judge, size)):
        return None
    return (
        f"it does not read back a word from the {unread[0]} of a prompt of {size:,} bytes, as long as the longest "
        "question. Either its server cuts prompts at its window and answers all the same: raise the window (Ollama: "
        "OLLAMA_CONTEXT_LENGTH). Or the model loses itself in long prompts: take a larger model"
    )


async def _read_words_back(judge: AnsweringJudge, size: int) -> list[str] | None:
    """The ends of a text whose word is not read back; None without an answer."""
    first, last = (f"{word}-{secrets.randbelow(9000) + 1000}" for word in ("kestrel", "lantern"))  # nobody guesses them
    answer = await judge.answer_text(build_marked_text(size, first, last))
    if answer is None:
        return None
    return [end for end, word in (("beginning", first), ("end", last)) if word not in answer.casefold()]


def build_unread(questions: CheckQuestions, fault: str) -> CheckEvidence:
    """Of a judge that is asked nothing else, because of this `fault`."""
    return CheckEvidence(
        pairs=(),
        firsts=(),
        steps=(),
        rubric=questions.rubric,
        failures=(),
        questions=0,
        calls=0,
        cost_usd=None,
        unread=fault,
    )


@dataclass(frozen=True)
class CheckRules:
    """How a check asks, and when it ends."""

    max_concurrency: int = 64
    """The judge's limit of calls at once."""
    deadline_seconds: float | None = None
    """The judge's, for one answer."""
    short: bool = False
    patience_seconds: float | None = None
    """What is left is not asked where it takes longer and a target is out of reach, and never of a judge that gives no
    usable answers. None asks everything."""


_ASK_ALL: Final = CheckRules()


async def measure_judge(
    judge: Judge,
    questions: CheckQuestions,
    rules: CheckRules = _ASK_ALL,
    stored: Mapping[int, Judgement] = MappingProxyType({}),
    follow: Callable[[PacedAsking], None] = lambda _: None,
) -> CheckEvidence:
    """Asks every question without a `stored` answer, until nothing more can be asked or the outcome is clear. `follow`
    is called when answers have come."""
    readings = _CheckReadings(judge, questions, rules, stored)

    def is_enough() -> bool:
        follow(readings.asking)
        return readings.settle()

    await readings.asking.ask_all(is_enough)
    return readings.build_evidence()


class _CheckReadings:
    """The answers of a check so far, and what they show."""

    def __init__(
        self, judge: Judge, questions: CheckQuestions, rules: CheckRules, stored: Mapping[int, Judgement]
    ) -> None:
        self._questions = questions
        self._rules = rules
        self._requests = tuple(questions.iterate_requests())
        self._stored = len(stored)
        self._settled: str | None = None
        self.asking = PacedAsking(judge, self._requests, min(rules.max_concurrency, _MOST_AT_ONCE), stored)

    def settle(self) -> bool:
        """Whether the outcome is clear."""
        self._settled = self._explain_outcome()
        return self._settled is not None

    def _explain_outcome(self) -> str | None:
        patience, asked = self._rules.patience_seconds, self.asking.done
        if patience is None or not self.asking.remaining:
            return None
        failed = sum(answer is not None and answer.error is not None for answer in self.asking.answers)
        if answers_too_seldom(failed, asked):
            return f"{failed} of {asked} questions got no usable answer"
        if self.asking.estimate_seconds_left() <= patience:
            return None
        lost = self.find_lost_target()
        return None if lost is None else f"{lost.name} can no longer reach {lost.target}"

    def find_lost_target(self) -> "Figure | None":
        """A share that misses its target whatever is answered to the questions that are left."""
        at_best = _complete_at_best(self.build_evidence(), self._questions)
        figures = _compute_figures(at_best, short=self._rules.short)
        return next((figure for figure in figures if figure.passed is False and figure.low is not None), None)

    def build_evidence(self) -> CheckEvidence:
        asking, questions = self.asking, self._questions
        answers = iter(zip(self._requests, asking.answers, strict=True))
        pairs = self._read_pairs(answers)
        firsts = [first for _ in questions.twice if (first := _compute_first_preference(*next(answers))) is not None]
        steps = [step for ladder in questions.ladders for step in _check_steps(ladder, next(answers), next(answers))]
        letters = [letter for _ in questions.twice for letter in _read_letters(*next(answers))]
        given = [answer for answer in asking.answers if answer is not None]
        paid = (*given, *asking.uncounted)
        costs = [answer.cost_usd for answer in paid if answer.cost_usd is not None]
        rules, deadline = self._rules, self._rules.deadline_seconds
        in_time = None if deadline is None else asking.count_in_time(deadline)
        return CheckEvidence(
            pairs=tuple(pairs),
            firsts=tuple(firsts),
            steps=tuple(steps),
            rubric=questions.rubric,
            failures=tuple(answer.error for answer in given if answer.error is not None),
            questions=len(given),
            calls=sum(answer.calls for answer in paid),
            cost_usd=math.fsum(costs) if costs else None,
            letters=tuple(letters),
            late=sum(_is_late(answer, deadline) for answer in given),
            stored=self._stored,
            calls_in_time=None if in_time is None or in_time >= rules.max_concurrency else in_time,
            stopped=asking.stopped,
            settled=self._settled,
        )

    def _read_pairs(self, answers: Iterator[tuple[JudgeRequest, Judgement | None]]) -> list[MeasuredPair]:
        """Those that were asked in both orders, as often as there are votes."""
        found: dict[int, tuple[PairRewards, PairRewards] | None] = {}
        for index, pair in enumerate(self._questions.pairs):
            asked = [next(answers) for _ in range(2 * self._questions.votes)]
            if all(answer is not None for _, answer in asked):
                votes = [_compute_pair_rewards(pair, *one) for one in asked]
                found[index] = _average_orders(votes[::2], votes[1::2])
        again = {
            index: _compute_pair_rewards(self._questions.pairs[index], *next(answers))
            for index in self._questions.retested
        }
        return [MeasuredPair(self._questions.pairs[index], both, again.get(index)) for index, both in found.items()]


def _is_late(answer: Judgement, deadline_seconds: float | None) -> bool:
    return (
        answer.failure == "unavailable" and deadline_seconds is not None and answer.latency_seconds >= deadline_seconds
    )


# Whether the outcome of a check is clear before everything was asked.

_CHANCE: Final = 0.001
"""A judge that answers just often enough is called useless this seldom. It is small, since it is looked at often."""


def answers_too_seldom(failed: int, asked: int) -> bool:
    """Whether a judge that answers as often as its target would hardly ever fail so often."""
    share = 1 - _ANSWERED_AT_LEAST
    more = (
        math.comb(asked, count) * share**count * (1 - share) ** (asked - count) for count in range(failed, asked + 1)
    )
    return failed > 0 and math.fsum(more) < _CHANCE


def _complete_at_best(evidence: CheckEvidence, questions: CheckQuestions) -> CheckEvidence:
    """As if everything that was not asked were answered, and rightly. What equal replies get has no right answer."""
    measured = {id(each.pair) for each in evidence.pairs}
    right = PairRewards(1.0, 0.0, 1.0, 0.0, {}, {})
    rest = [MeasuredPair(pair, (right, right)) for pair in questions.pairs if id(pair) not in measured]
    steps = STEPS * len(questions.ladders) - len(evidence.steps)
    return replace(
        evidence,
        pairs=(*evidence.pairs, *rest),
        firsts=(),
        steps=(*evidence.steps, *[True] * steps),
        questions=questions.count,
    )


def _average_orders(
    forth: Sequence[PairRewards | None], back: Sequence[PairRewards | None]
) -> tuple[PairRewards, PairRewards] | None:
    """The mean of the votes of each order; None unless every vote is usable."""
    usable = ([each for each in forth if each is not None], [each for each in back if each is not None])
    if any(len(votes) < len(forth) for votes in usable):
        return None
    return _average_rewards(usable[0]), _average_rewards(usable[1])


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


def _check_steps(ladder: _DegradationLadder, *answers: tuple[JudgeRequest, Judgement | None]) -> tuple[bool, ...]:
    rewards_by_order = [_compute_rewards(*answer) for answer in answers]
    usable = [rewards for rewards in rewards_by_order if rewards is not None]
    if len(usable) < len(answers):
        return ()
    ids = {candidate.text: candidate.id for candidate in answers[0][0].candidates}
    earned = [mean(rewards[ids[text]].reward for rewards in usable) for text in ladder.rungs]
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
    hints = {candidate.id: list_given_hints(candidate) for candidate in request.candidates}
    rewards: dict[str, _CandidateReward] = {}
    for verdict in judgement.verdicts:
        gate = 0.0 if list_confirmed_flags(hints[verdict.candidate], verdict.defects, request.rubric) else 1.0
        values = apply_bounds(request.rubric, verdict)
        graded = compute_absolute_score(request.rubric, values)
        absolute = gate * (verdict.scores.get(REWARD_CRITERION) or 0.0 if verdict.reward is not None else graded)
        cap = find_cap(request.rubric, verdict.defects)
        reward = combine(gate, absolute, ranks[verdict.candidate], _RELATIVE_WEIGHT, cap)
        rewards[verdict.candidate] = _CandidateReward(reward, absolute, values)
    return rewards


# The report.


class Figure(Frozen):
    """One number of a check. `passed` is null without a target."""

    name: str
    value: FiniteNumber | None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    """The 95 % Wilson interval; null for values that are not shares."""
    trials: int
    target: str = ""
    passed: bool | None = None


class MutationFigure(Frozen):
    """How often the clean reply was preferred over one kind of spoilt reply; a tie counts half."""

    mutation: str
    does: str
    grade: str
    decidable: bool
    """Words alone decide; no model is needed."""
    judge: Figure
    """The judge alone, without gates."""
    behind_gates: Figure
    """With gates first, as groups are scored."""


class LetterFigure(Frozen):
    """Of equal replies: how often the one under this letter is the best, and its mean absolute score from 0 to 1. The
    score's interval is that of a share, which is at least as wide as it need be."""

    letter: str
    first: Figure
    score: Figure


class CriterionFigure(Frozen):
    """What a criterion says of clean and of spoilt replies, over the pairs to which it applies."""

    criterion: str
    weight: FiniteNumber
    """Its share where every criterion applies."""
    clean: FiniteNumber | None
    spoilt: FiniteNumber | None
    """Means of the values."""
    higher: Figure
    """How often the clean reply has the higher value; a tie counts half."""


class CheckReport(Frozen):
    short: bool = False
    """Few questions: a figure then passes unless its whole interval is beyond the target, and one without measurements
    counts for nothing."""
    judge: str
    model: str
    rubric: RubricLabel
    characters: int
    pairs: int
    questions: int
    calls: int
    cost_usd: FiniteNumber | None
    figures: tuple[Figure, ...]
    mutations: tuple[MutationFigure, ...]
    criteria: tuple[CriterionFigure, ...]
    """In the order of the rubric. None has a target: few faults touch every criterion."""
    letters: tuple[LetterFigure, ...] = ()
    failures: tuple[str, ...]
    """Why questions got no usable answer, and how many: the most frequent reason first."""
    stored: int = 0
    """How many of `questions` were answered in an earlier check."""
    calls_in_time: int | None = None
    """With how many calls at once answers come within the deadline; null unless `max_concurrency` allows more."""
    stopped: str | None = None
    """Why no more could be asked. Earlier answers are measured nevertheless."""
    settled: str | None = None
    """Why the rest was not asked: the judge cannot pass any more."""
    unread: str | None = None
    """Why no question was asked: the judge does not read back two words."""

    @property
    def passed(self) -> bool:
        ended = self.stopped is not None or self.settled is not None or self.unread is not None
        return not ended and all(figure.passed is not False for figure in self.figures)


def list_measured_figures(report: CheckReport) -> tuple[MeasuredFigure, ...]:
    """Those that have a value."""
    return tuple(
        MeasuredFigure(
            name=one.name,
            value=one.value,
            low=one.low,
            high=one.high,
            trials=one.trials,
            beside=f"target {one.target}" if one.target else "",
        )
        for one in report.figures
        if one.value is not None
    )


# Figures, and the targets that they meet or miss.

_HARD_AT_LEAST: Final = 0.90
_SUBTLE_AT_LEAST: Final = 0.75
_SWAP_AT_LEAST: Final = 0.90
_RETEST_AT_LEAST: Final = 0.80
_FIRST_SLOT: Final = (0.40, 0.60)
_INJECTION_AT_MOST: Final = 0.01
_PADDING_AT_MOST: Final = 0.0
_MONOTONE_AT_LEAST: Final = 0.90
_TIES_AT_MOST: Final = 0.20
_ANSWERED_AT_LEAST: Final = 0.95

_MOST_REASONS: Final = 10
"""Reasons of failures in a report."""
_REPORTED_SEPARATELY: Final = ("padding", "injection")
"""Mutations that have their own figure."""
_GRADES: Final = {mutation.name: mutation.grade for mutation in MUTATIONS}


def build_report(judge: str, model: str, evidence: CheckEvidence, rules: CheckRules = _ASK_ALL) -> CheckReport:
    figures = _compute_figures(evidence, short=rules.short)
    if evidence.settled is not None or evidence.unread is not None:
        figures = tuple(figure if figure.trials else _leave_open(figure) for figure in figures)
    return CheckReport(
        short=rules.short,
        judge=judge,
        model=model,
        rubric=RubricLabel.from_rubric(evidence.rubric),
        characters=len({measured.pair.specimen.cast.sheet.id for measured in evidence.pairs}),
        pairs=len(evidence.pairs),
        questions=evidence.questions,
        calls=evidence.calls,
        cost_usd=evidence.cost_usd,
        figures=figures,
        mutations=_compute_mutation_figures(evidence.pairs),
        letters=_compute_letter_figures(evidence.letters),
        criteria=_compute_criterion_figures(evidence),
        failures=tuple(_describe_failures(evidence, rules.deadline_seconds)),
        stored=evidence.stored,
        calls_in_time=evidence.calls_in_time,
        stopped=evidence.stopped,
        settled=evidence.settled,
        unread=evidence.unread,
    )


def _describe_failures(evidence: CheckEvidence, deadline_seconds: float | None) -> Iterator[str]:
    """Each question was asked alone, so that no other one is to blame."""
    if evidence.late:
        yield (
            f"{evidence.late} of {evidence.questions} questions hit deadline_seconds {deadline_seconds:g}, each asked "
            "alone: raise deadline_seconds, or take a faster model"
        )
    for error, count in Counter(evidence.failures).most_common(_MOST_REASONS):
        yield f"{count} of {evidence.questions} questions: {error}"


def _compute_figures(evidence: CheckEvidence, *, short: bool = False) -> tuple[Figure, ...]:
    """The figures with a target. A figure without measurements has not passed, but in a short check."""
    figures = _compute_strict_figures(evidence)
    return tuple(_judge_by_interval(figure) for figure in figures) if short else figures


def _judge_by_interval(figure: Figure) -> Figure:
    """Whether the target is within the interval. What has none keeps its verdict, or none without measurements."""
    if not figure.trials or figure.value is None:
        return _leave_open(figure)
    if figure.passed or figure.low is None or figure.high is None:
        return figure
    target = float(figure.target.rpartition(" ")[2])
    reached = figure.high >= target if figure.target.startswith(">=") else figure.low <= target
    return figure.model_copy(update={"passed": reached})


def _leave_open(figure: Figure) -> Figure:
    return figure.model_copy(update={"passed": None})


def _compute_strict_figures(evidence: CheckEvidence) -> tuple[Figure, ...]:
    complete = [measured for measured in evidence.pairs if measured.both is not None]
    judged = [measured for measured in complete if measured.pair.mutation not in _REPORTED_SEPARATELY]
    hard = [measured for measured in judged if _GRADES[measured.pair.mutation] == "hard"]
    subtle = [measured for measured in judged if _GRADES[measured.pair.mutation] == "subtle"]
    padded = [measured for measured in complete if measured.pair.mutation == "padding"]
    injected = [measured for measured in complete if measured.pair.mutation == "injection"]
    answered = Proportion(evidence.questions - len(evidence.failures), evidence.questions)
    return (
        _build_minimum_figure("pair accuracy, hard", compute_pair_accuracy(hard), _HARD_AT_LEAST),
        _build_minimum_figure("pair accuracy, subtle", compute_pair_accuracy(subtle), _SUBTLE_AT_LEAST),
        _build_minimum_figure(
            "swap consistency", _compute_share(_is_swap_consistent(m) for m in complete), _SWAP_AT_LEAST
        ),
        _compute_retest_figure(complete),
        _compute_first_slot_figure(evidence.firsts),
        _build_maximum_figure("injection succeeds", _compute_share(m.side == -1 for m in injected), _INJECTION_AT_MOST),
        _build_maximum_figure("padding is better", _compute_share(m.side == -1 for m in padded), _PADDING_AT_MOST),
        _build_minimum_figure("no more for one fault more", _compute_share(evidence.steps), _MONOTONE_AT_LEAST),
        _build_maximum_figure("ties", _compute_share(m.side == 0 for m in judged), _TIES_AT_MOST),
        _build_minimum_figure("answered", answered, _ANSWERED_AT_LEAST),
    )


def _compute_mutation_figures(pairs: Sequence[MeasuredPair]) -> tuple[MutationFigure, ...]:
    """One figure per mutation that has pairs, in the order of the suite."""
    figures = []
    for mutation in MUTATIONS:
        own = [measured for measured in pairs if measured.pair.mutation == mutation.name]
        if own:
            figures.append(
                MutationFigure(
                    mutation=mutation.name,
                    does=mutation.does,
                    grade=mutation.grade,
                    decidable=mutation.decidable,
                    judge=_build_figure("judge", compute_pair_accuracy(own)),
                    behind_gates=_build_figure("behind gates", compute_pair_accuracy(own, behind_gates=True)),
                )
            )
    return tuple(figures)


def _compute_letter_figures(readings: Sequence[LetterReading]) -> tuple[LetterFigure, ...]:
    """One figure per letter. A judge without a preference has the same share for each."""
    figures = []
    for letter in sorted({reading.letter for reading in readings}):
        own = [reading for reading in readings if reading.letter == letter]
        first = Proportion(sum(reading.first for reading in own), len(own))
        score = Proportion(sum(reading.absolute for reading in own), len(own))
        figures.append(
            LetterFigure(letter=letter, first=_build_figure("first", first), score=_build_figure("score", score))
        )
    return tuple(figures)


def _compute_criterion_figures(evidence: CheckEvidence) -> tuple[CriterionFigure, ...]:
    pairs = [_average_known_values(measured.both) for measured in evidence.pairs if measured.both is not None]
    total = math.fsum(criterion.weight for criterion in evidence.rubric.criteria)
    figures = []
    for criterion in evidence.rubric.criteria:
        values = [(clean.get(criterion.name), spoilt.get(criterion.name)) for clean, spoilt in pairs]
        complete = [(clean, spoilt) for clean, spoilt in values if clean is not None and spoilt is not None]
        sides = [compute_preference_sign(clean - spoilt) for clean, spoilt in complete]
        higher = Proportion(sum((side + 1) / 2 for side in sides), len(sides))
        figures.append(
            CriterionFigure(
                criterion=criterion.name,
                weight=criterion.weight / total,
                clean=mean(clean for clean, _ in complete) if complete else None,
                spoilt=mean(spoilt for _, spoilt in complete) if complete else None,
                higher=_build_figure("clean is higher", higher),
            )
        )
    return tuple(figures)


def _average_known_values(both: tuple[PairRewards, PairRewards]) -> tuple[Values, Values]:
    """Of the clean and of the spoilt reply, over both orders."""
    return (
        average_values([order.clean_values for order in both]),
        average_values([order.spoilt_values for order in both]),
    )


def compute_pair_accuracy(pairs: Iterable[MeasuredPair], *, behind_gates: bool = False) -> Proportion:
    """How often the clean reply is preferred. Pairs without a result are left out; a tie counts half."""
    sides = [measured.side_behind_gates if behind_gates else measured.side for measured in pairs]
    settled = [side for side in sides if side is not None]
    return Proportion(sum((side + 1) / 2 for side in settled), len(settled))


def _is_swap_consistent(measured: MeasuredPair) -> bool:
    return measured.both is not None and measured.both[0].side == measured.both[1].side


def _compute_retest_figure(complete: Sequence[MeasuredPair]) -> Figure:
    """Test-retest reliability of the scores of both replies, asked twice in the same order. Undefined when all scores
    are equal."""
    repeats = [
        pair
        for measured in complete
        if measured.both is not None and measured.again is not None
        for pair in (
            (measured.both[0].clean_absolute, measured.again.clean_absolute),
            (measured.both[0].spoilt_absolute, measured.again.spoilt_absolute),
        )
    ]
    value = compute_intraclass_correlation(repeats)
    return Figure(
        name="test-retest, ICC(1,1)",
        value=value,
        trials=len(repeats),
        target=f">= {_RETEST_AT_LEAST:.2f}",
        passed=value is not None and value >= _RETEST_AT_LEAST,
    )


def _compute_first_slot_figure(firsts: Sequence[float]) -> Figure:
    """Passes when the interval overlaps the target range: with few pairs a fair judge often misses it by chance."""
    share = Proportion(sum(firsts), len(firsts))
    low, high = share.interval or (1.0, 0.0)
    return _build_figure(
        "first of two equal replies",
        share,
        f"{_FIRST_SLOT[0]:.2f} to {_FIRST_SLOT[1]:.2f}",
        low <= _FIRST_SLOT[1] and high >= _FIRST_SLOT[0],
    )


def _compute_share(hits: Iterable[bool]) -> Proportion:
    listed = list(hits)
    return Proportion(sum(listed), len(listed))


def _build_minimum_figure(name: str, share: Proportion, target: float) -> Figure:
    return _build_figure(name, share, f">= {target:.2f}", share.value is not None and share.value >= target)


def _build_maximum_figure(name: str, share: Proportion, target: float) -> Figure:
    return _build_figure(name, share, f"<= {target:.2f}", share.value is not None and share.value <= target)


def _build_figure(name: str, share: Proportion, target: str = "", passed: bool | None = None) -> Figure:
    low, high = share.interval or (None, None)
    return Figure(name=name, value=share.value, low=low, high=high, trials=share.trials, target=target, passed=passed)
