"""How judges read a group of texts: the modes, and the further readings that some groups get.

`listwise`: a judge reads the whole group at once, in a shuffled order and in the reverse. `pairwise`: it reads two
texts at a time, in both orders. `pointwise`: it reads each text by itself. Orders are mirrored because judges prefer
some places: a text that comes early in one reading comes late in the other, so that the preference cancels in the mean,
and its strength can be measured. An order is a keyed hash of the texts. The order of a request therefore does not
matter, and a repeated group asks the same questions, which the cache answers.

In `listwise` the judges of a panel share the orders: these are spread over the judges before they repeat within one,
since two judges know more than one judge asked twice. A group is read again, up to MOST_READINGS, only while that is
expected to change its rewards. A group too large for one question is split into parts, and chunks of two parts are
read: every two of up to four parts, so that no two texts need to be compared by an estimate, and neighbours in a circle
of more (decision 0008).

A question that fails is asked once more. A comparison that fails again is left out where the others connect all texts.
One more reading decides about a defect that exactly half of the readings report; another one, beside replies of known
level, gives calibrated values, on which no reward depends.
"""

import asyncio
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Final, TypeVar

from app.domain.judging import (
    Case,
    Defect,
    DefectRule,
    Judgement,
    JudgeRequest,
    Mode,
    Probes,
    Rubric,
    RubricCriterion,
    apply_bounds,
)
from app.domain.scores import (
    CALIBRATION_SECONDS,
    LEVELS,
    CalibratedValue,
    CalibrationGap,
    ReferenceKind,
    ReferencePlan,
    References,
    fit_reference_line,
)
from app.domain.values import digest, is_same_model
from app.judges.aggregation import (
    BY_POSITION,
    CandidateGroup,
    GroupResult,
    JudgedGroup,
    JudgeView,
    Pairings,
    Shares,
    UsableJudgement,
    build_failed_result,
    build_result,
    build_samples,
    build_view,
    compute_preference,
    compute_win_rates,
    drop_uneven_criteria,
    estimate_gain,
    kendall_tau,
    list_pairings,
    mean,
    mean_kendall_tau,
    rank_by_value,
    suffice_for_order,
    to_usable,
)
from app.judges.configuration import DeadlineJudge
from app.judges.gates import GateResult, group_passed, run_gates_on_case
from app.judges.verdicts import (
    MirroredOrders,
    arrange_circle,
    build_mirrored_orders,
    choose_first,
    list_mirrored_orders,
)
from app.ports.judges import BackedJudge, CalibrationReading, Judge, WrittenReferences, can_write, get_pace
from app.toolkit.texts import run_in_turn
from app.toolkit.thoughts import strip_leading_thoughts

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

# Asking a judge, and once more what failed.

_MOST_READ_ON_LOOP: Final = 50_000
"""Largest group, in characters, whose judgements are read on the event loop: checking quotes takes time by its size."""
_FINAL_FAILURES: Final = frozenset(("refused", "budget", "language"))
"""Failures that asking again does not change."""


@dataclass(frozen=True)
class Question:
    """A request about a group or part of one."""

    part: CandidateGroup
    request: JudgeRequest


@dataclass(frozen=True)
class Answer:
    """All judgements of a question: one, or two where the first could not be used. `reading` is null where neither
    could."""

    part: CandidateGroup
    judgements: tuple[Judgement, ...]
    reading: UsableJudgement | None


async def ask_questions(
    judge: Judge, questions: Sequence[Question], *, has_answered: bool = False
) -> tuple[Answer, ...]:
    """The first goes ahead where it warms the provider's cache, unless the judge `has_answered` about this group.
    Failed questions are asked once more, but only if the judge answers others, and there is time."""
    ahead = 1 if get_pace(judge).warms_cache and not has_answered else 0
    first = [await _ask_question(judge, question) for question in questions[:ahead]]
    answers = [*first, *await await_all([_ask_question(judge, question) for question in questions[ahead:]])]
    works = has_answered or any(answer.reading is not None for answer in answers)
    failed = any(answer.reading is None for answer in answers)
    # Asking a judge again that answers nothing would only wait for its retries a second time.
    if not failed or not works or (isinstance(judge, DeadlineJudge) and judge.expired):
        return tuple(answers)
    return tuple(
        await await_all(
            [_ask_again(judge, question, answer) for question, answer in zip(questions, answers, strict=True)]
        )
    )


async def await_all(work: Sequence[Coroutine[None, None, ResultT]]) -> list[ResultT]:
    """As `asyncio.gather`. What is alone is awaited in place: a task of its own takes two more passes of the loop."""
    return [await work[0]] if len(work) == 1 else await asyncio.gather(*work)


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


async def _ask_question(judge: Judge, question: Question) -> Answer:
    judgement = await ask_judge(judge, question.request)
    large = sum(map(len, question.part.texts)) > _MOST_READ_ON_LOOP
    off_loop = run_in_turn("judges", to_usable, question.part, judgement) if large else None
    return Answer(
        question.part, (judgement,), to_usable(question.part, judgement) if off_loop is None else await off_loop
    )


async def _ask_again(judge: Judge, question: Question, first: Answer) -> Answer:
    if first.reading is not None or first.judgements[0].failure in _FINAL_FAILURES:
        return first
    second = await _ask_question(judge, question)
    return Answer(question.part, first.judgements + second.judgements, second.reading)


def list_judgements(answers: Sequence[Answer]) -> tuple[JudgedGroup, ...]:
    """The judgements with what they are about, in the order of the questions."""
    return tuple((answer.part, judgement) for answer in answers for judgement in answer.judgements)


async def _read_lone_text(judge: Judge, group: CandidateGroup, mode: Mode, votes: int = 1) -> GroupResult:
    """For a single text, without comparison."""
    questions = [Question(group, group.build_request(group.texts, mode, vote)) for vote in range(votes)]
    answers = await ask_questions(judge, questions)
    readings = [answer.reading for answer in answers if answer.reading is not None]
    asked = list_judgements(answers)
    if not readings:
        return build_failed_result(judge, asked)
    return build_result(judge, [made for _, made in asked], build_view(group, [(group, readings)], None))


# Listwise.

MOST_READINGS: Final = 4
"""Most readings of a group, or of a chunk of it, by all judges together. Every judge reads it once in any case."""
_WORTH_READING: Final = 0.06
"""A group is read again while two more readings are expected to raise the correlation of its rewards with the truth by
this, divided by the number of replies: a reading of many replies improves as many rewards."""


async def read_listwise(
    judges: Sequence[Judge], group: CandidateGroup, relative_weight: float, most: int = MOST_READINGS
) -> tuple[GroupResult, ...]:
    """One result for each judge whose own orders mirror each other, otherwise one for all that answered; then one for
    each that failed. A reading without its mirror does not count, unless `most` is 1. Chunks that fail are left out
    where the others are enough for an order."""
    if len(group.texts) == 1:
        return tuple(await await_all([_read_lone_text(judge, group, "listwise") for judge in judges]))
    largest = min(get_pace(judge).largest_group for judge in judges)
    reading = _GroupReading(judges, group, split_into_chunks(group, largest), most)
    await reading.read(reading.chunks, reading.least)
    while unsettled := [chunk for chunk in reading.chunks if reading.is_worth_reading(chunk, relative_weight)]:
        await reading.read(unsettled, 2)
    return reading.build_results()


def split_into_chunks(group: CandidateGroup, largest: int) -> tuple[CandidateGroup, ...]:
    """The group itself up to `largest` texts. A larger group is split into parts of at most half of that, and each
    chunk combines two parts, so that every part links several chunks."""
    if len(group.texts) <= largest:
        return (group,)
    texts = arrange_circle(group.case.key, group.texts)
    count = count_parts(len(texts), largest)
    parts = [texts[offset::count] for offset in range(count)]
    return tuple(group.select_texts(parts[one] + parts[other]) for one, other in list_pairings(count))


def count_parts(size: int, largest: int) -> int:
    """How many parts a group that is too large for one question is split into."""
    return -(-size // (largest // 2))


def count_readings(judges: int, most: int = MOST_READINGS) -> tuple[int, int]:
    """Fewest and most readings of a group by all judges together. Mirrored orders come in pairs."""
    if most == 1:
        return judges, judges
    least = max(2, judges + judges % 2)
    return least, max(least, most - most % 2)


@dataclass
class _ChunkReading:
    """The readings of a chunk by their number; null where nobody could give it."""

    chunk: CandidateGroup
    readings: list[UsableJudgement | None] = field(default_factory=list)
    shown: set[tuple[int, Mode, tuple[str, ...]]] = field(default_factory=set)
    """What was asked: judge, mode and order. The same again would be answered the same."""
    by_judge: dict[int, list[UsableJudgement]] = field(default_factory=dict)
    """Of each judge, or of the fallback that answered for it, in the order in which they came."""
    orders: MirroredOrders = ()

    def list_orders(self, pairs: int) -> MirroredOrders:
        """As `list_mirrored_orders`, of which each begins as the one before."""
        if len(self.orders) < pairs:
            self.orders = list_mirrored_orders(self.chunk.case.key, self.chunk.texts, pairs)
        return self.orders

    def list_usable(self, *, in_pairs: bool) -> tuple[UsableJudgement, ...]:
        if not in_pairs:
            return tuple(reading for reading in self.readings if reading is not None)
        pairs = zip(self.readings[::2], self.readings[1::2], strict=True)
        return tuple(
            reading for one, other in pairs if one is not None and other is not None for reading in (one, other)
        )


@dataclass(frozen=True)
class _Slot:
    """One reading to be made: whose, and of what."""

    chunk: _ChunkReading
    number: int
    """Of the chunk's readings. An even number and the next one are an order and its reverse."""
    judge: int
    question: Question


class _GroupReading:
    """All readings of one group in `listwise`, by all judges of the panel."""

    def __init__(
        self, judges: Sequence[Judge], group: CandidateGroup, chunks: Sequence[CandidateGroup], most: int
    ) -> None:
        self.least, self._most = count_readings(len(judges), most)
        self.chunks = tuple(map(_ChunkReading, chunks))
        self._judges = judges
        self._group = group
        self._in_pairs = most > 1
        self._first = choose_first(group.case.key, group.texts, len(judges))
        self._asked: defaultdict[int, list[JudgedGroup]] = defaultdict(list)
        self._answered: set[int] = set()

    async def read(self, chunks: Sequence[_ChunkReading], count: int) -> None:
        """Makes the next `count` readings of each chunk. What a judge fails at is given to one that answers."""
        slots = [
            slot
            for chunk in chunks
            for number in range(len(chunk.readings), len(chunk.readings) + count)
            if (slot := self._plan(chunk, number)) is not None
        ]
        # After the plan, which counts from the readings before; a slot whose reading fails stays null.
        for chunk in chunks:
            chunk.readings += [None] * count
        failed = await self._ask(slots)
        substitutes = [instead for slot in failed if (instead := self._find_substitute(slot)) is not None]
        await self._ask(substitutes)

    def is_worth_reading(self, chunk: _ChunkReading, relative_weight: float) -> bool:
        usable = chunk.list_usable(in_pairs=self._in_pairs)
        if not usable or len(chunk.readings) >= self._most:
            return False
        samples = build_samples(chunk.chunk, [(chunk.chunk, usable)])
        if estimate_gain(samples, relative_weight) * len(chunk.chunk.texts) < _WORTH_READING:
            return False
        return self._plan(chunk, len(chunk.readings)) is not None

    def build_results(self) -> tuple[GroupResult, ...]:
        usable = {each.chunk.texts: each.list_usable(in_pairs=self._in_pairs) for each in self.chunks}
        chunks = [each.chunk for each in self.chunks if usable[each.chunk.texts]]
        if len(chunks) < len(self.chunks) and not suffice_for_order(
            _list_pairs(self._group, [each.chunk for each in self.chunks]), _list_pairs(self._group, chunks)
        ):
            return tuple(build_failed_result(judge, self._asked[number]) for number, judge in enumerate(self._judges))
        parts = [(chunk, usable[chunk.texts]) for chunk in chunks]
        answering = [number for number in self._turns if number in self._answered]
        apart = [
            (number, [(chunk, self._select_own(number, chunk, readings)) for chunk, readings in parts])
            for number in sorted(answering)
        ]
        # A judge that read each order as often as its reverse has no place to prefer, and counts by its own
        # reliability. Otherwise only the readings of all judges together are mirrored.
        if all(_are_mirrored(own) for _, own in apart):
            results = [self._build_result([number], own) for number, own in apart]
        else:
            results = [self._build_result(answering, parts)]
        missing = [number for number in range(len(self._judges)) if number not in self._answered]
        return (*results, *(build_failed_result(self._judges[number], self._asked[number]) for number in missing))

    def _select_own(
        self, judge: int, chunk: CandidateGroup, readings: Sequence[UsableJudgement]
    ) -> tuple[UsableJudgement, ...]:
        """Those of one judge, or of the fallback that answered for it."""
        # By identity: two readings of a judge may be equal, and only one of them count.
        own = {id(reading) for each in self.chunks for reading in each.by_judge.get(judge, ()) if each.chunk == chunk}
        return tuple(reading for reading in readings if id(reading) in own)

    def _build_result(
        self, judges: Sequence[int], parts: Sequence[tuple[CandidateGroup, tuple[UsableJudgement, ...]]]
    ) -> GroupResult:
        view = build_view(
            self._group,
            parts,
            compute_win_rates(len(self._group.texts), compute_shares(self._group, parts)),
            follows_position=_follows_position([readings for _, readings in parts]),
            is_complete=sum(len(each.readings) for each in self.chunks) >= max(self._most, 3) * len(self.chunks),
            lacks_readings=len(parts) < len(self.chunks),
        )
        return build_result(
            self._judges[judges[0]], [made for number in sorted(judges) for _, made in self._asked[number]], view
        )

    @property
    def _turns(self) -> tuple[int, ...]:
        """The judges in the order in which they read. A hash says who is first, so that nobody always is."""
        return tuple((self._first + turn) % len(self._judges) for turn in range(len(self._judges)))

    def _plan(self, chunk: _ChunkReading, number: int) -> _Slot | None:
        """None when no order is left that its judge has not read. Two texts have two orders, and two forms in which
        they can be put."""
        turn, seat = divmod(number, len(self._judges))
        pair, side = divmod(number, 2)
        if len(self._judges) % 2 == 0:  # a judge's second reading is the mirror of its first
            pair, side = turn // 2 * (len(self._judges) // 2) + seat // 2, (seat + turn) % 2
        is_pair = len(chunk.chunk.texts) == 2
        pair = 0 if is_pair else pair  # two texts have no second pair of orders
        orders = chunk.list_orders(pair + 1)
        if pair >= len(orders) or (is_pair and turn > 3):
            return None
        mode: Mode = "pairwise" if is_pair and turn > 1 else "listwise"
        request = chunk.chunk.build_request(orders[pair][side], mode, mirrored=self._in_pairs)
        return _Slot(chunk, number, self._turns[seat], Question(chunk.chunk, request))

    def _find_substitute(self, slot: _Slot) -> _Slot | None:
        for judge in self._turns:
            if judge in self._answered and _describe(judge, slot.question) not in slot.chunk.shown:
                return _Slot(slot.chunk, slot.number, judge, slot.question)
        return None

    async def _ask(self, slots: Sequence[_Slot]) -> list[_Slot]:
        """Returns the slots that failed."""
        by_judge: defaultdict[int, list[_Slot]] = defaultdict(list)
        for slot in slots:
            by_judge[slot.judge].append(slot)
            slot.chunk.shown.add(_describe(slot.judge, slot.question))
        answers = await await_all([self._ask_judge(judge, own) for judge, own in by_judge.items()])
        made = [
            pair
            for own, answered in zip(by_judge.values(), answers, strict=True)
            for pair in zip(own, answered, strict=True)
        ]
        for slot, answer in made:
            slot.chunk.readings[slot.number] = answer.reading
            if answer.reading is not None:
                slot.chunk.by_judge.setdefault(slot.judge, []).append(answer.reading)
        return [slot for slot, answer in made if answer.reading is None]

    async def _ask_judge(self, judge: int, slots: Sequence[_Slot]) -> Sequence[Answer]:
        answers = await ask_questions(
            self._judges[judge], [slot.question for slot in slots], has_answered=judge in self._answered
        )
        self._asked[judge] += list_judgements(answers)
        if any(answer.reading is not None for answer in answers):
            self._answered.add(judge)
        return answers


def _are_mirrored(parts: Sequence[tuple[CandidateGroup, Sequence[UsableJudgement]]]) -> bool:
    """Whether every chunk is read, and as often in an order as in its reverse."""
    for chunk, readings in parts:
        orders = Counter(reading.slots for reading in readings)
        last = len(chunk.texts) - 1
        if not orders or any(orders[tuple(last - slot for slot in order)] != count for order, count in orders.items()):
            return False
    return True


def _describe(judge: int, question: Question) -> tuple[int, Mode, tuple[str, ...]]:
    request = question.request
    return judge, request.mode, tuple(candidate.id for candidate in request.candidates)


def _list_pairs(group: CandidateGroup, chunks: Sequence[CandidateGroup]) -> Pairings:
    return tuple(sorted({pair for chunk in chunks for pair in combinations(group.locate_texts(chunk), 2)}))


def compute_shares(
    group: CandidateGroup, chunks: Sequence[tuple[CandidateGroup, tuple[UsableJudgement, ...]]]
) -> Shares:
    """How often one text of each pair was preferred: a mean per chunk, since a pair may be in several chunks."""
    by_pair: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for chunk, readings in chunks:
        standings = zip(*(reading.standings for reading in readings), strict=True)
        for (one, ones), (other, others) in combinations(zip(group.locate_texts(chunk), standings, strict=True), 2):
            by_pair[one, other].append(sum(map(compute_preference, ones, others)) / len(ones))  # exact: all are halves
    return {pair: shares[0] if len(shares) == 1 else mean(shares) for pair, shares in by_pair.items()}


def _follows_position(chunks: Sequence[Sequence[UsableJudgement]]) -> bool:
    """Whether the standings agree by slot rather than by text. A single reading cannot tell."""
    repeated = [readings for readings in chunks if len(readings) > 1]
    if not repeated:
        return False
    by_slot = mean(
        mean_kendall_tau([reading.order_by_slot(reading.standings) for reading in readings]) for readings in repeated
    )
    return by_slot >= BY_POSITION and by_slot > mean(
        mean_kendall_tau([reading.standings for reading in readings]) for readings in repeated
    )


# Pairwise.


@dataclass(frozen=True)
class _PairComparison:
    """Two texts, read in both orders in each of `votes`. A vote with only one order does not count."""

    pair: CandidateGroup
    votes: tuple[tuple[UsableJudgement, UsableJudgement], ...]

    @property
    def share(self) -> float:
        """Win share of the first text: the mean over both orders."""
        return mean(self._compute_standings())

    @property
    def by_text(self) -> float:
        """Agreement of the orders by text, from -1 to 1."""
        one, other = self._compute_standings()
        return kendall_tau((one, 1.0 - one), (other, 1.0 - other))

    @property
    def by_slot(self) -> float:
        """Agreement of the orders by slot, from -1 to 1."""
        one, other = (
            mean(reading.order_by_slot(reading.standings)[0] for reading in readings)
            for readings in zip(*self.votes, strict=True)
        )
        return kendall_tau((one, 1.0 - one), (other, 1.0 - other))

    def _compute_standings(self) -> tuple[float, float]:
        one, other = (mean(reading.standings[0] for reading in readings) for readings in zip(*self.votes, strict=True))
        return one, other


async def read_pairwise(judge: Judge, group: CandidateGroup, votes: int = 1) -> GroupResult:
    """Compares every pair up to ROUND_ROBIN texts, above that each text with its next NEIGHBOURS in a circle. A single
    text is read once."""
    if len(group.texts) == 1:
        return await _read_lone_text(judge, group, "pointwise")
    texts = arrange_circle(group.case.key, group.texts)
    pairs = [group.select_texts((texts[one], texts[other])) for one, other in list_pairings(len(texts))]
    answers = await ask_questions(judge, [question for pair in pairs for question in _build_questions(pair, votes)])
    each = 2 * votes
    duels = [_build_comparison(pair, answers[each * n : each * (n + 1)]) for n, pair in enumerate(pairs)]
    made = [duel for duel in duels if duel.votes]
    asked = list_judgements(answers)
    if not suffice_for_order(_list_index_pairs(group, duels), _list_index_pairs(group, made)):
        return build_failed_result(judge, asked)
    view = _aggregate_comparisons(group, made, lacks_readings=len(made) < len(duels))
    return build_result(judge, [judgement for _, judgement in asked], view)


def _build_questions(pair: CandidateGroup, votes: int) -> Iterator[Question]:
    orders = build_mirrored_orders(pair.case.key, pair.texts, 0)
    yield from (
        Question(pair, pair.build_request(order, "pairwise", vote)) for vote in range(votes) for order in orders
    )


def _list_index_pairs(group: CandidateGroup, duels: Sequence[_PairComparison]) -> Pairings:
    return tuple((low, high) for low, high in (group.locate_texts(duel.pair) for duel in duels))


def _build_comparison(pair: CandidateGroup, answers: Sequence[Answer]) -> _PairComparison:
    readings = [answer.reading for answer in answers]
    votes = zip(readings[::2], readings[1::2], strict=True)
    return _PairComparison(pair, tuple((one, other) for one, other in votes if one is not None and other is not None))


def _aggregate_comparisons(
    group: CandidateGroup, duels: Sequence[_PairComparison], lacks_readings: bool
) -> JudgeView | None:
    shares = {}
    for duel in duels:
        low, high = group.locate_texts(duel.pair)
        shares[low, high] = duel.share
    by_slot, by_text = mean(duel.by_slot for duel in duels), mean(duel.by_text for duel in duels)
    return build_view(
        group,
        [(duel.pair, tuple(chain.from_iterable(duel.votes))) for duel in duels],
        compute_win_rates(len(group.texts), shares),
        lacks_readings=lacks_readings,
        follows_position=by_slot >= BY_POSITION and by_slot > by_text,
    )


# Pointwise.


async def read_pointwise(judge: Judge, group: CandidateGroup, votes: int = 1) -> GroupResult:
    """Ranks follow the texts' mean scores. Each text needs at least one usable judgement."""
    if len(group.texts) == 1:
        return await _read_lone_text(judge, group, "pointwise", votes)
    parts = [group.select_texts((text,)) for text in group.texts]
    questions = [
        Question(part, part.build_request(part.texts, "pointwise", vote)) for part in parts for vote in range(votes)
    ]
    answers = await ask_questions(judge, questions)
    readings = [
        (part, [answer.reading for answer in answers[n * votes : (n + 1) * votes] if answer.reading is not None])
        for n, part in enumerate(parts)
    ]
    asked = list_judgements(answers)
    if not all(listed for _, listed in readings):
        return build_failed_result(judge, asked)
    scored = build_view(group, readings, None)
    view = None if scored is None else build_view(group, readings, rank_by_value(scored.absolutes))
    return build_result(judge, [judgement for _, judgement in asked], view)


# One more reading, beside replies of known level (the references); and a judge that writes such replies.

_NO_RUBRIC: Final = Rubric(
    name="references",
    version="1",
    instructions="",
    criteria=(RubricCriterion(name="none", weight=1.0, description="", anchors={}),),
)
_LONGEST_REPLY: Final = 4_000
"""Characters of a reference."""


@dataclass(frozen=True)
class _ShownGroup:
    """The candidates and references of one question, and the text of each candidate that is among them."""

    group: CandidateGroup
    texts: tuple[str | None, ...]
    """By candidate; null for gated ones."""
    references: Mapping[ReferenceKind, str]


async def read_beside_references(
    judges: Sequence[Judge], case: Case, references: References, seconds: float
) -> CalibrationReading:
    """One judge reads, chosen by the task. Candidates and references are shown alike, in an order by a keyed hash."""
    shown = await _show_together(case, references)
    judge = judges[choose_first(case.key, shown.group.texts, len(judges))]
    group = _select_shown(shown, get_pace(judge).largest_group)
    order, _ = build_mirrored_orders(case.key, group.texts, 0)
    question = Question(group, group.build_request(order, "listwise", mirrored=False))
    # `has_answered`: a judge that fails at its only question is asked once more.
    (answer,) = await ask_questions(DeadlineJudge(judge, seconds), [question], has_answered=True)
    marked = tuple(made.model_copy(update={"purpose": "calibration"}) for made in answer.judgements)
    if answer.reading is None:
        gap: CalibrationGap = "budget" if marked[-1].failure == "budget" else "judge_failed"
        return CalibrationReading(tuple(None if text is None else gap for text in shown.texts), marked)
    return CalibrationReading(_place_on_line(shown, group, answer.reading), marked)


async def _show_together(case: Case, references: References) -> _ShownGroup:
    """References get the hints of word checks that candidates get; gates do not stop them."""
    replies = {kind: strip_leading_thoughts(text) for kind, text in references.replies.items()}
    seen = tuple(strip_leading_thoughts(text) for text in case.candidates)
    noticed = await run_gates_on_case(case.model_copy(update={"candidates": (*case.candidates, *replies.values())}))
    own = noticed[: len(seen)]
    beside = [each if not each.failed else GateResult((), ()) for each in noticed[len(seen) :]]
    passed = group_passed((*seen, *replies.values()), (*own, *beside))
    hints = {text: tuple(hint.notices for hint in each.hints) for text, each in passed.items()}
    group = CandidateGroup.from_texts(case, passed, hints=hints)
    texts = tuple(None if each.failed else text for text, each in zip(seen, own, strict=True))
    return _ShownGroup(group, texts, replies)


def _select_shown(shown: _ShownGroup, largest: int) -> CandidateGroup:
    """All references, and as many candidates as one question has room for, chosen by a keyed hash."""
    beside = set(shown.references.values())
    room = max(1, largest - len(beside))
    circle = arrange_circle(shown.group.case.key, shown.group.texts)
    return shown.group.select_texts([*beside, *[text for text in circle if text not in beside][:room]])


def _place_on_line(
    shown: _ShownGroup, group: CandidateGroup, reading: UsableJudgement
) -> tuple[CalibratedValue | CalibrationGap | None, ...]:
    bounded = drop_uneven_criteria([apply_bounds(group.case.rubric, verdict) for verdict in reading.verdicts])
    scores = dict(zip(group.texts, group.compute_absolutes(bounded), strict=True))
    line = fit_reference_line([(LEVELS[kind], scores[text]) for kind, text in sorted(shown.references.items())])
    values: dict[str, CalibratedValue | CalibrationGap] = {
        text: "flat_line" if line is None else line.calibrate(score) for text, score in scores.items()
    }
    return tuple(None if text is None else values.get(text, "not_read") for text in shown.texts)


async def ask_for_references(
    judges: Sequence[Judge], plan: ReferencePlan, case: Case, policy: str | None
) -> WrittenReferences | None:
    """A judge that can writes the replies that `plan` does not give; they must pass the gates of `case`. None where
    none can, but for the model `policy`: a policy would be compared with itself."""
    writers = [judge for judge in judges if can_write(judge) and not _may_be_policy(judge, policy)]
    if not writers:
        return None
    missing = tuple(kind for kind in sorted(LEVELS) if kind not in plan.given)
    judge = writers[_choose_writer(plan.scene, len(writers))]
    request = JudgeRequest(
        rubric=_NO_RUBRIC, document={}, probes=Probes(), candidates=(), wanted=missing, brief=plan.brief
    )
    made = (await ask_judge(DeadlineJudge(judge, CALIBRATION_SECONDS), request)).model_copy(
        update={"purpose": "references"}
    )
    replies = None if made.error is not None else parse_references(made.raw, missing)
    if replies is None or isinstance(replies, str) or not await _are_usable(replies, plan, case):
        return WrittenReferences(None, made)
    return WrittenReferences(replies, made)


async def _are_usable(written: Mapping[ReferenceKind, str], plan: ReferencePlan, case: Case) -> bool:
    """Written replies are frozen: each must pass the gates of candidates, and equal no other. What people wrote is
    exempt from the gates."""
    texts = [*written.values(), *map(strip_leading_thoughts, plan.given.values())]
    if len({" ".join(text.casefold().split()) for text in texts}) < len(texts):
        return False
    alone = case.model_copy(update={"candidates": tuple(written.values()), "lines": (), "episodes": ()})
    return not any(each.failed for each in await run_gates_on_case(alone))


def _may_be_policy(judge: Judge, policy: str | None) -> bool:
    asked = (judge, judge.fallback) if isinstance(judge, BackedJudge) else (judge,)
    return policy is not None and any(is_same_model(one.model, policy) for one in asked)


def _choose_writer(key: str, count: int) -> int:
    return int(digest(["writer", key]), 16) % count


def parse_references(answer: str, kinds: Sequence[ReferenceKind]) -> dict[ReferenceKind, str] | str:
    """The replies by kind, or what is wrong with the answer. Text around the JSON object is ignored."""
    text = strip_leading_thoughts(answer)
    start, end = text.find("{"), text.rfind("}")
    try:
        document: object = json.loads(text[start : end + 1]) if start >= 0 else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return "there is no complete JSON object in the answer"
    written: dict[ReferenceKind, str] = {}
    for kind in kinds:
        reply: object = document.get(kind)
        written[kind] = strip_leading_thoughts(reply).strip() if isinstance(reply, str) else ""
        if not 0 < len(written[kind]) <= _LONGEST_REPLY:
            return f'"{kind}" must be a text of 1 to {_LONGEST_REPLY} characters'
    if len(set(written.values())) < len(written):
        return "two of the replies are the same"
    return written


# Defects: which of them count, and one more reading where the readings of a reply are divided about a cap.

_ORDER: Final = 2
"""The number of the order in which divided replies are shown. The readings before have 0 and 1."""


def count_reported(readings: Sequence[Sequence[Defect]]) -> Mapping[str, Defect]:
    """By code, with the first quote, those that more than half of the readings report: a cap takes from a good reply
    most of what it earned, so one judge's slip must not be enough (decision 0028)."""
    if not any(readings):
        return {}
    counts = Counter(code for defects in readings for code in {defect.code for defect in defects})
    counted: dict[str, Defect] = {}
    for defect in (defect for defects in readings for defect in defects):
        if 2 * counts[defect.code] > len(readings):
            counted.setdefault(defect.code, defect)
    return counted


async def settle_divided_caps(
    judge: Judge, group: CandidateGroup, report: GroupResult, mode: Mode, votes: int
) -> GroupResult:
    """The report with one more verdict on each reply of which exactly half of the readings report a defect that would
    lower its cap, unless all readings are used up."""
    view = report.view
    if view is None or view.is_complete:
        return report
    divided = [
        text
        for index, text in enumerate(group.texts)
        if is_divided(group.case.rubric, [defects for _, defects in view.list_defect_reports(index)])
    ]
    if not divided:
        return report
    parts = list(_split_divided(judge, group, divided, mode))
    questions = [Question(part, _build_request(part, group, mode, votes)) for part in parts]
    answers = await ask_questions(judge, questions, has_answered=True)
    decided = {
        index: (answer.reading.judgement, verdict)
        for answer in answers
        if answer.reading is not None
        for index, verdict in zip(group.locate_texts(answer.part), answer.reading.verdicts, strict=True)
    }
    made = [judgement for _, judgement in list_judgements(answers)]
    return replace(report, judgements=(*report.judgements, *made), view=replace(view, deciding_verdicts=decided))


def is_divided(rubric: Rubric, readings: Sequence[Sequence[Defect]]) -> bool:
    """Whether exactly half of the readings of a reply report a defect that would lower its cap."""
    if not any(readings):
        return False
    counts = Counter(code for defects in readings for code in {defect.code for defect in defects})
    counted = count_reported(readings)
    cap = min((_get_cap(rule) for rule in rubric.defects if rule.code in counted), default=1.0)
    return any(_get_cap(rule) < cap and 2 * counts[rule.code] == len(readings) for rule in rubric.defects)


def _get_cap(rule: DefectRule) -> float:
    """0 for a defect that may close a gate."""
    return 0.0 if rule.confirms is not None else 1.0 if rule.cap is None else rule.cap


def _split_divided(judge: Judge, group: CandidateGroup, texts: Sequence[str], mode: Mode) -> Iterator[CandidateGroup]:
    """Together where the mode reads several replies at once."""
    size = get_pace(judge).largest_group if mode == "listwise" else 1
    yield from (group.select_texts(texts[start : start + size]) for start in range(0, len(texts), size))


def _build_request(part: CandidateGroup, group: CandidateGroup, mode: Mode, votes: int) -> JudgeRequest:
    """What was not asked before: a whole group in an order of its own, and two replies, of which both orders are used
    up, in the form of a pair."""
    if len(part.texts) == 1:
        return part.build_request(part.texts, "pointwise", votes if mode == "pointwise" else 0)
    orders = list_mirrored_orders(part.case.key, part.texts, _ORDER + 1)
    whole_pair = len(orders) == 1 and len(part.texts) == len(group.texts)
    return part.build_request(orders[-1][0], "pairwise" if whole_pair else "listwise", mirrored=False)
