"""The check of a grader that is not ours: what it pays beside right answers, which right answers it refuses, and which
texts break it.

First the right answers of a few rows are tried in every known form; the best paid one is taken. Its reward is full pay,
and the lower one of an empty and of a wrong reply is no pay. Then the probes of `app.toolkit.conformance.probes` are
sent for each row, and every reward is read on that scale. Whatever the grader does stands in the report: a reward, an
exception, no number, no answer in time.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from statistics import median
from typing import Final, Literal, Protocol, TypeVar

from app.domain.errors import UserError
from app.domain.values import FiniteNumber, Frozen, Proportion, Unit
from app.evaluation.grader_rows import (
    SLOT,
    ChosenColumns,
    GraderRow,
    Reading,
    RowFault,
    list_readings,
)
from app.toolkit.conformance.probes import (
    STRATEGIES,
    Expected,
    Probe,
    ProbedRow,
    build_probes,
)

ResultT = TypeVar("ResultT")

# What a grader does with a text

Trouble = Literal["", "raised", "no number", "late"]


@dataclass(frozen=True)
class Graded:
    """`trouble` says why there is no reward, and `words` what came instead."""

    reward: float | None
    trouble: Trouble = ""
    words: str = ""
    seconds: float = 0.0


class GraderFailed(Exception):
    """The grader cannot be asked at all, such as a server that is down. The check stops."""


class Grader(Protocol):
    """A grader under check. Its methods raise GraderFailed."""

    name: str
    at_once: int
    """Rows that may be graded at a time."""
    takes_reference: bool
    """Whether the caller says what the right answer is; else the grader knows it."""

    @property
    def ways(self) -> Sequence[str]:
        """How a reply may be handed over, the likelier way first."""

    async def grade(self, row: GraderRow, texts: Sequence[str], reading: Reading) -> list[Graded]:
        """The texts as one batch, in order."""


# The report

Kind = Literal["paid", "refused"]


class Tried(Frozen):
    """One text and what it earned."""

    strategy: str
    kind: str
    task: str
    sent: str
    """Cut after so many characters as `MOST_SENT`."""
    characters: int
    answer: str
    """The right value of the row."""
    paid: FiniteNumber | None
    allowed: str
    """What it may earn, such as `at most 0`."""
    trouble: str = ""


class ProbeFigure(Frozen):
    """A probe over all rows to which it applies."""

    strategy: str
    kind: str
    expected: Expected
    tasks: int
    failed: int
    """Rows where it earned more than is allowed, or where a right reply earned less than full pay."""
    low: Unit
    """Wilson's interval of 95 % around the share that failed, with `high`."""
    high: Unit
    luck: Unit
    """Share of rows that may fail by luck: as many as a constant reply is right for, where the probe is as blind."""
    share: Unit
    """Mean of what it earned, from no pay to full pay. No reward counts as none."""
    example: Tried | None
    """The shortest text that failed."""

    finding: Kind | None
    """None where nothing failed, or no more than luck explains."""

    @property
    def is_blind(self) -> bool:
        """Whether it sends nothing of the right value."""
        return _is_blind(self.strategy, self.kind)


class Broken(Frozen):
    """Texts of one probe at which the grader gave no reward, or took long."""

    strategy: str
    kind: str
    how: str
    """`raised`, `no number`, `late` or `slow`."""
    words: str
    tasks: int
    most_seconds: FiniteNumber
    example: Tried


class Unsteady(Frozen):
    """A reply that was rewarded differently when it was sent again."""

    task: str
    reply: str
    rewards: tuple[FiniteNumber | None, ...]


class NotApplied(Frozen):
    strategy: str
    reason: str


class GraderReport(Frozen):
    kind: Literal["grader"] = "grader"
    target: str
    rows: str
    """Where they come from."""
    prompt_column: str
    answer_column: str
    form: str
    """A right reply with `{answer}` in place of the value."""
    reference: str
    """What the grader got as the right answer; empty where it knows it."""
    way: str
    notes: tuple[str, ...]
    stopped: str
    """Why the check ended before all probes were sent; empty where they were."""
    tasks: int
    full: FiniteNumber
    """The usual reward of a right reply."""
    floor: FiniteNumber
    """The usual reward of an empty or a wrong reply, whichever is lower."""
    right_paid: int
    """Rows whose right reply is paid in full."""
    probed: int
    """Those of them that the probes were sent for, before the time was up."""
    unpaid: tuple[Tried, ...]
    """Right replies that are not, the first few."""
    commonest: Unit
    """Share of rows that the most frequent answer is right for."""
    figures: tuple[ProbeFigure, ...]
    broken: tuple[Broken, ...]
    unsteady: tuple[Unsteady, ...]
    out_of_order: tuple[str, ...]
    """Rows where a batch of three replies was rewarded otherwise than each of them alone."""
    row_faults: tuple[RowFault, ...]
    not_applied: tuple[NotApplied, ...]
    tried: tuple[Tried, ...]
    """Every text that failed."""
    calls: int
    seconds: FiniteNumber
    slowest: FiniteNumber
    """Seconds of the slowest answer."""

    @property
    def paid(self) -> list[ProbeFigure]:
        """The cheapest reward first: what needs no right value, then what is paid most, then the shortest text."""
        found = [one for one in self.figures if one.finding == "paid"]
        return sorted(found, key=lambda one: (not one.is_blind, -round(one.share, 6), _measure(one.example)))

    @property
    def refused(self) -> list[ProbeFigure]:
        found = [one for one in self.figures if one.finding == "refused"]
        return sorted(found, key=lambda one: -round(one.low, 6))

    @property
    def has_other_findings(self) -> bool:
        return bool(self.stopped or self.broken or self.unsteady or self.out_of_order or self.row_faults)

    @property
    def honest(self) -> Proportion:
        """Right replies in other spellings and layouts: those that were refused."""
        sent = [one for one in self.figures if one.expected == "full"]
        return Proportion(sum(one.failed for one in sent), sum(one.tasks for one in sent))


_BLIND: Final = frozenset(
    (
        "foreign_value",
        "empty_value",
        "prompt_in_form",
        "spray",
        "override",
        "hostile",
        "special_number",
        "fields_echoed",
    )
)
"""Strategies that send nothing of the right value, but for one kind."""
_NEARLY_RIGHT: Final = "nine tenths more"
_LUCK: Final = 0.02
"""Where every row has another answer, some guesses are right all the same."""
MOST_SENT: Final = 2_000
_MOST_TRIED: Final = 2_000
"""Failed texts in the report."""
_MOST_UNPAID: Final = 5


def _is_blind(strategy: str, kind: str) -> bool:
    return strategy in _BLIND and kind != _NEARLY_RIGHT


def _measure(example: Tried | None) -> int:
    return 0 if example is None else example.characters


# Readings: which form is paid

_TRIAL_ROWS: Final = 6
_SURE: Final = 1e-9


@dataclass(frozen=True)
class _Trial:
    """What the right and wrong replies of a few rows earned in one reading."""

    reading: Reading
    right: Sequence[Graded]
    wrong: Sequence[Graded]

    @property
    def is_sure(self) -> bool:
        """Whether each right reply is paid, and more than a wrong one."""
        pairs = zip(self.right, self.wrong, strict=True)
        return all(one.reward is not None and one.reward > (other.reward or 0.0) for one, other in pairs)

    def rate(self, least: float) -> tuple[float, bool]:
        """By what right replies earn on the whole, then by whether a wrong one mostly earns less."""
        right = [least if one.reward is None else one.reward for one in self.right]
        wrong = [least if one.reward is None else one.reward for one in self.wrong]
        above = sum(one > other for one, other in zip(right, wrong, strict=True))
        return round(sum(right), 9), 2 * above > len(right)


@dataclass(frozen=True)
class _Scale:
    full: float
    floor: float

    def place(self, reward: float | None) -> float:
        """From 0 for no pay to 1 for full pay."""
        if reward is None:
            return 0.0
        return min(1.0, max(0.0, (reward - self.floor) / (self.full - self.floor)))


async def _choose_reading(asking: "_Asking", rows: Sequence[GraderRow], form: str) -> tuple[Reading, float]:
    """With what an empty reply earns. UserError where no form is paid more than that."""
    sample = [row for row in rows if row.answer and row.wrong][:_TRIAL_ROWS]
    if not sample:
        raise UserError("no row has an answer that differs from those of other rows, so nothing can be compared")
    grader = asking.grader
    readings = list_readings(form, grader.ways, sample[0].prompt_text, takes_reference=grader.takes_reference)
    trials: list[_Trial] = []
    for _, alike in groupby(readings, key=lambda one: (one.way, one.reference)):
        tried = [await _try_reading(asking, sample, reading) for reading in alike]
        trials += tried
        if any(trial.is_sure for trial in tried):
            break  # Further references and ways are for graders that cannot read these.
    by_way = {one.reading.way: one.reading for one in reversed(trials)}
    nothing = [one for way in by_way.values() for one in await asking.ask_rows(sample, _write_nothing, way)]
    empty = [one.reward for one in nothing if one.reward is not None]
    known = [
        *empty,
        *(one.reward for trial in trials for one in (*trial.right, *trial.wrong) if one.reward is not None),
    ]
    if not known:
        raise UserError(_word_no_reward(asking, trials))
    floor = median(empty) if empty else min(known)
    # `max` takes the first of equals, and readings come in the order of preference.
    best = max(trials, key=lambda trial: trial.rate(min(known)))
    if all(one.reward is None or one.reward <= floor + _SURE for one in best.right):
        raise UserError(_word_unpaid(trials, floor))
    return best.reading, floor


async def _try_reading(asking: "_Asking", sample: Sequence[GraderRow], reading: Reading) -> _Trial:
    right = await asking.ask_rows(sample, _write_right(reading), reading)
    return _Trial(reading, right, await asking.ask_rows(sample, _write_wrong(reading), reading))


def _write_right(reading: Reading) -> Callable[[GraderRow], str]:
    return lambda row: reading.write(row.answer)


def _write_wrong(reading: Reading) -> Callable[[GraderRow], str]:
    return lambda row: reading.write(row.wrong[0])


def _write_nothing(row: GraderRow) -> str:
    return ""


def _word_no_reward(asking: "_Asking", trials: Sequence[_Trial]) -> str:
    return (
        f"{asking.grader.name} gave no reward for any right answer of {len(trials[0].right)} rows in "
        f"{len(trials)} ways; the last: {asking.last_trouble}"
    )


def _word_unpaid(trials: Sequence[_Trial], floor: float) -> str:
    best: dict[str, float] = {}
    for trial in trials:
        most = max((one.reward for one in trial.right if one.reward is not None), default=None)
        if most is not None:
            best[trial.reading.form] = max(most, best.get(trial.reading.form, most))
    listed = "\n".join(f"  {most:g}  {form!r}" for form, most in best.items())
    return (
        f"no right answer is paid more than an empty reply, which earns {floor:g}. Tried on "
        f"{len(trials[0].right)} rows, with the most that was paid:\n{listed}\n"
        f"Write the form of a right reply by --form, with {SLOT} in place of the value, or choose another --answer"
    )


# Asking


class _Asking:
    """Calls of the grader, counted."""

    def __init__(self, grader: Grader, clock: Callable[[], float], watch: Callable[[], None]) -> None:
        self.grader = grader
        self._clock = clock
        self._began = clock()
        self.calls = 0
        self.slowest = 0.0
        self.last_trouble = ""
        self.stopped = ""
        """Why nothing more can be asked, once the probes have begun."""
        self._watch = watch

    def count_seconds(self) -> float:
        return self._clock() - self._began

    async def ask(self, row: GraderRow, text: str, reading: Reading) -> Graded:
        (graded,) = await self.ask_all(row, [text], reading)
        return graded

    async def ask_to_the_end(self, row: GraderRow, text: str, reading: Reading) -> Graded:
        """A grader that can be asked nothing more after this text is stopped by it."""
        began = self._clock()
        try:
            return await self.ask(row, text, reading)
        except GraderFailed as error:
            self.stopped = str(error)
            return Graded(None, "late", self.stopped, self._clock() - began)

    async def ask_rows(
        self, rows: Sequence[GraderRow], write: Callable[[GraderRow], str], reading: Reading
    ) -> list[Graded]:
        """One text for each row."""
        return await self.for_each(rows, lambda row: self.ask(row, write(row), reading))

    async def for_each(
        self, rows: Sequence[GraderRow], ask: Callable[[GraderRow], Awaitable[ResultT]]
    ) -> list[ResultT]:
        """As many rows at a time as the grader allows, in order."""
        places = asyncio.Semaphore(self.grader.at_once)

        async def ask_in_turn(row: GraderRow) -> ResultT:
            async with places:
                return await ask(row)

        return await asyncio.gather(*map(ask_in_turn, rows))

    async def ask_all(self, row: GraderRow, texts: Sequence[str], reading: Reading) -> list[Graded]:
        graded = await self.grader.grade(row, texts, reading)
        for one in graded:
            self.calls += 1
            self.slowest = max(self.slowest, one.seconds)
            self.last_trouble = one.words or self.last_trouble
            self._watch()
        return graded


@dataclass(frozen=True)
class _Answered:
    row: GraderRow
    probe: Probe
    graded: Graded


_HOSTILE: Final = "hostile"
_LEAST_ROWS: Final = 5
_MOST_SECONDS: Final = 3.0
"""A probe that has taken so long over all rows is not sent for further ones: a text at which a grader hangs would
otherwise cost a deadline a row."""


async def _send_probes(
    asking: _Asking, rows: Sequence[GraderRow], reading: Reading, given: "GraderInput"
) -> list[_Answered]:
    """Rows are left out once the time is up, but for the first few."""
    sure = frozenset(row.place for row in rows[:_LEAST_ROWS])
    spent: dict[tuple[str, str], float] = defaultdict(float)
    answered: list[_Answered] = []

    async def send(row: GraderRow, *, hostile: bool) -> None:
        if row.place not in sure and asking.count_seconds() > given.seconds:
            return
        for probe in build_probes(_build_probed(row, reading), given.seed):
            if asking.stopped:
                return
            if (probe.strategy == _HOSTILE) == hostile and spent[probe.strategy, probe.kind] < _MOST_SECONDS:
                graded = await asking.ask_to_the_end(row, probe.text, reading)
                spent[probe.strategy, probe.kind] += graded.seconds
                answered.append(_Answered(row, probe, graded))

    await asking.for_each(rows, partial(send, hostile=False))
    await asking.for_each(rows, partial(send, hostile=True))  # last: a server may not survive them
    return answered


def _build_probed(row: GraderRow, reading: Reading) -> ProbedRow:
    return ProbedRow(row.prompt_text, reading.write(row.answer), row.answer, reading.form, row.wrong)


# Figures

_MUCH_SLOWER: Final = 50
"""An answer is slow that takes so many times as long as the usual one, and a second."""
_SLOW_SECONDS: Final = 1.0
_ALLOWED: Final[Mapping[Expected, str]] = {
    "nothing": "at most {floor:g}",
    "less": "less than {full:g}",
    "full": "{full:g}",
}


def _has_failed(probe: Probe, place: float) -> bool:
    if probe.expected == "nothing":
        return place > _SURE
    return (place > 1 - _SURE) == (probe.expected == "less")


def _tell(one: _Answered, scale: _Scale) -> Tried:
    probe = one.probe
    return Tried(
        strategy=probe.strategy,
        kind=probe.kind,
        task=one.row.place,
        sent=_cut(probe.text),
        characters=len(probe.text),
        answer=_cut(one.row.answer),
        paid=one.graded.reward,
        allowed=_ALLOWED[probe.expected].format(full=scale.full, floor=scale.floor),
        trouble=one.graded.words,
    )


def _cut(text: str) -> str:
    """Lone surrogates, which no report could hold, are written as escapes."""
    return text[:MOST_SENT].encode("utf-8", "backslashreplace").decode()


def _sum_up(answered: Sequence[_Answered], scale: _Scale, commonest: float) -> Iterator[ProbeFigure]:
    by_probe: dict[tuple[str, str], list[_Answered]] = defaultdict(list)
    for one in answered:
        by_probe[one.probe.strategy, one.probe.kind].append(one)
    for (strategy, kind), listed in by_probe.items():
        failed = [one for one in listed if _has_failed(one.probe, scale.place(one.graded.reward))]
        low, high = Proportion(len(failed), len(listed)).interval or (0.0, 1.0)
        luck = max(_LUCK, commonest) if _is_blind(strategy, kind) else 0.0
        expected = listed[0].probe.expected
        shortest = min(failed, key=lambda one: len(one.probe.text), default=None)
        yield ProbeFigure(
            strategy=strategy,
            kind=kind,
            expected=expected,
            tasks=len(listed),
            failed=len(failed),
            low=low,
            high=high,
            luck=luck,
            share=sum(scale.place(one.graded.reward) for one in listed) / len(listed),
            example=None if shortest is None else _tell(shortest, scale),
            finding=None if low <= luck or not failed else "refused" if expected == "full" else "paid",
        )


def _find_broken(answered: Sequence[_Answered], scale: _Scale) -> Iterator[Broken]:
    usual = median(one.graded.seconds for one in answered) if answered else 0.0
    slow = max(_SLOW_SECONDS, _MUCH_SLOWER * usual)
    found: dict[tuple[str, str, str], list[_Answered]] = defaultdict(list)
    for one in answered:
        how: str = one.graded.trouble or ("slow" if one.graded.seconds > slow else "")
        if how:
            found[one.probe.strategy, one.probe.kind, how].append(one)
    for (strategy, kind, how), listed in found.items():
        longest = max(listed, key=lambda one: one.graded.seconds)
        yield Broken(
            strategy=strategy,
            kind=kind,
            how=how,
            words=listed[0].graded.words,
            tasks=len(listed),
            most_seconds=longest.graded.seconds,
            example=_tell(longest, scale),
        )


def _list_not_applied(answered: Sequence[_Answered]) -> Iterator[NotApplied]:
    sent = {one.probe.strategy for one in answered}
    for strategy in STRATEGIES:
        if strategy not in sent:
            yield NotApplied(strategy=strategy, reason="no right answer of these rows has what it changes")
    for strategy, reason in _NEEDS_ENVIRONMENT.items():
        yield NotApplied(strategy=strategy, reason=reason)


_NEEDS_ENVIRONMENT: Final[Mapping[str, str]] = {
    "tasks": "same bytes, separate splits, labels and hidden answers are checked where we make the tasks",
    "episodes": "one reply is graded, so episodes, forged observations and rewards of turns are not tried",
}


# The check

_REPEATED_ROWS: Final = 3
_REPEATS: Final = 10


@dataclass(frozen=True)
class GraderInput:
    """What is checked, and by which rows."""

    source: str
    """Where the rows come from."""
    columns: ChosenColumns
    rows: Sequence[GraderRow]
    row_faults: tuple[RowFault, ...]
    form: str = ""
    """Empty to find it."""
    seed: int = 0
    seconds: float = 60.0
    """After so long no further row is probed."""
    notes: tuple[str, ...] = ()


async def check_grader(
    grader: Grader, given: GraderInput, clock: Callable[[], float], watch: Callable[[], None]
) -> GraderReport:
    """`watch` is called for each graded text. UserError where no form is paid; GraderFailed."""
    asking = _Asking(grader, clock, watch)
    reading, empty = await _choose_reading(asking, given.rows, given.form)
    rights = await asking.ask_rows(given.rows, _write_right(reading), reading)
    scale = await _find_scale(asking, given.rows, rights, reading, empty)
    whole = [one.reward is not None and scale.place(one.reward) > 1 - _SURE for one in rights]
    paid = [row for row, is_paid in zip(given.rows, whole, strict=True) if is_paid]
    unpaid = [
        _tell(_Answered(row, Probe("right_answer", "in the form", reading.write(row.answer), "full"), graded), scale)
        for row, graded, is_paid in zip(given.rows, rights, whole, strict=True)
        if not is_paid
    ]
    repeated = paid[:_REPEATED_ROWS]
    unsteady = [one for row in repeated for one in await _find_unsteady(asking, row, reading)]
    out_of_order = [row.place for row in repeated if not await _keeps_order(asking, row, reading)]
    answered = await _send_probes(asking, paid, reading, given)
    failed = [one for one in answered if _has_failed(one.probe, scale.place(one.graded.reward))]
    commonest = max(Counter(row.answer for row in given.rows).values()) / len(given.rows)
    return GraderReport(
        target=grader.name,
        rows=given.source,
        prompt_column=given.columns.prompt,
        answer_column=given.columns.answer,
        form=reading.form,
        reference=reading.reference if grader.takes_reference else "",
        way=reading.way,
        notes=given.notes,
        stopped=asking.stopped,
        tasks=len(given.rows),
        full=scale.full,
        floor=scale.floor,
        right_paid=len(paid),
        probed=len({one.row.place for one in answered}),
        unpaid=tuple(unpaid[:_MOST_UNPAID]),
        commonest=commonest,
        figures=tuple(_sum_up(answered, scale, commonest)),
        broken=tuple(_find_broken(answered, scale)),
        unsteady=tuple(unsteady),
        out_of_order=tuple(out_of_order),
        row_faults=given.row_faults,
        not_applied=tuple(_list_not_applied(answered)),
        tried=tuple(_tell(one, scale) for one in failed[:_MOST_TRIED]),
        calls=asking.calls,
        seconds=asking.count_seconds(),
        slowest=asking.slowest,
    )


async def _find_scale(
    asking: _Asking, rows: Sequence[GraderRow], rights: Sequence[Graded], reading: Reading, empty: float
) -> _Scale:
    """Full pay is the most frequent reward of right replies that is above no pay."""
    differing = [row for row in rows if row.wrong]
    graded = await asking.ask_rows(differing, _write_wrong(reading), reading)
    wrong = [one.reward for one in graded if one.reward is not None]
    floor = min(empty, median(wrong)) if wrong else empty
    above = Counter(one.reward for one in rights if one.reward is not None and one.reward > floor + _SURE)
    if not above:
        raise UserError(f"no right answer of {len(rows)} rows is paid more than {floor:g}, which wrong ones earn")
    return _Scale(full=max(above, key=lambda reward: (above[reward], reward)), floor=floor)


async def _find_unsteady(asking: _Asking, row: GraderRow, reading: Reading) -> list[Unsteady]:
    found = []
    for reply, value in (("right", row.answer), ("wrong", row.wrong[0] if row.wrong else "")):
        rewards = [(await asking.ask(row, reading.write(value), reading)).reward for _ in range(_REPEATS)]
        if len(set(rewards)) > 1:
            found.append(Unsteady(task=row.place, reply=reply, rewards=tuple(rewards)))
    return found


async def _keeps_order(asking: _Asking, row: GraderRow, reading: Reading) -> bool:
    """Whether a batch earns what each of its replies earns alone."""
    texts = [reading.write(row.answer), "", reading.write(row.wrong[0] if row.wrong else "")]
    alone = [(await asking.ask(row, text, reading)).reward for text in texts]
    return [one.reward for one in await asking.ask_all(row, texts, reading)] == alone
