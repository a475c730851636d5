"""Listwise mode: judges read the whole group at once, in mirrored orders; very large groups in overlapping chunks.

Orders are spread over the judges before they repeat within one, and a group is read again only while that is expected
to change its rewards.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from app.domain.judging import Mode
from app.judges.aggregation import (
    BY_POSITION,
    CandidateGroup,
    GroupResult,
    JudgedGroup,
    UsableJudgement,
    build_failed_result,
    build_result,
    build_samples,
    build_view,
)
from app.judges.presentation_order import MirroredOrders, arrange_circle, choose_first, list_mirrored_orders
from app.judges.questions import Answer, Question, ask_questions, await_all, list_judgements, read_lone_text
from app.judges.ranks import (
    Pairings,
    Shares,
    compute_preference,
    compute_win_rates,
    list_pairings,
    mean,
    mean_kendall_tau,
    suffice_for_order,
)
from app.judges.reliability import estimate_gain
from app.ports.judges import Judge, get_pace

MOST_READINGS: Final = 4
"""Most readings of a group, or of a chunk of it, by all judges together. Every judge reads it once in any case."""
WORTH_READING: Final = 0.06
"""A group is read again while two more readings are expected to raise the correlation of its rewards with the truth by
this, divided by the number of replies: a reading of many replies improves as many rewards."""


async def read_listwise(
    judges: Sequence[Judge], group: CandidateGroup, relative_weight: float, most: int = MOST_READINGS
) -> tuple[GroupResult, ...]:
    """One result for each judge whose own orders mirror each other, otherwise one for all that answered; then one for
    each that failed. A reading without its mirror does not
    count, unless `most` is 1. Chunks that fail are left out where the others are enough for an order."""
    if len(group.texts) == 1:
        return tuple(await await_all([read_lone_text(judge, group, "listwise") for judge in judges]))
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
    parts = [texts[place::count] for place in range(count)]
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
    given: dict[int, list[UsableJudgement]] = field(default_factory=dict)
    """By judge, in the order in which they came."""
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
    judge: int
    question: Question


class _GroupReading:
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
        if estimate_gain(samples, relative_weight) * len(chunk.chunk.texts) < WORTH_READING:
            return False
        return self._plan(chunk, len(chunk.readings)) is not None

    def build_results(self) -> tuple[GroupResult, ...]:
        read = {each.chunk.texts: each.list_usable(in_pairs=self._in_pairs) for each in self.chunks}
        chunks = [each.chunk for each in self.chunks if read[each.chunk.texts]]
        if len(chunks) < len(self.chunks) and not suffice_for_order(
            _list_pairs(self._group, [each.chunk for each in self.chunks]), _list_pairs(self._group, chunks)
        ):
            return tuple(build_failed_result(judge, self._asked[place]) for place, judge in enumerate(self._judges))
        parts = [(chunk, read[chunk.texts]) for chunk in chunks]
        answering = [place for place in self._turns if place in self._answered]
        apart = [
            (place, [(chunk, self._select_own(place, chunk, readings)) for chunk, readings in parts])
            for place in sorted(answering)
        ]
        if all(_are_mirrored(own) for _, own in apart):
            results = [self._build_result([place], own) for place, own in apart]
        else:
            results = [self._build_result(answering, parts)]
        missing = [place for place in range(len(self._judges)) if place not in self._answered]
        return (*results, *(build_failed_result(self._judges[place], self._asked[place]) for place in missing))

    def _select_own(
        self, place: int, chunk: CandidateGroup, readings: Sequence[UsableJudgement]
    ) -> tuple[UsableJudgement, ...]:
        """Those of one judge, or of the fallback that answered for it."""
        own = {id(reading) for each in self.chunks for reading in each.given.get(place, ()) if each.chunk == chunk}
        return tuple(reading for reading in readings if id(reading) in own)

    def _build_result(
        self, places: Sequence[int], parts: Sequence[tuple[CandidateGroup, tuple[UsableJudgement, ...]]]
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
            self._judges[places[0]], [made for place in sorted(places) for _, made in self._asked[place]], view
        )

    @property
    def _turns(self) -> tuple[int, ...]:
        """The judges in the order in which they read."""
        return tuple((self._first + turn) % len(self._judges) for turn in range(len(self._judges)))

    def _plan(self, chunk: _ChunkReading, number: int) -> _Slot | None:
        """None when no order is left that its judge has not read. Two texts have two orders, and two forms in which
        they can be put."""
        turn, place = divmod(number, len(self._judges))
        pair, side = divmod(number, 2)
        if len(self._judges) % 2 == 0:  # a judge's second reading is the mirror of its first
            pair, side = turn // 2 * (len(self._judges) // 2) + place // 2, (place + turn) % 2
        is_pair = len(chunk.chunk.texts) == 2
        pair = 0 if is_pair else pair
        orders = chunk.list_orders(pair + 1)
        if pair >= len(orders) or (is_pair and turn > 3):
            return None
        mode: Mode = "pairwise" if is_pair and turn > 1 else "listwise"
        request = chunk.chunk.build_request(orders[pair][side], mode, mirrored=self._in_pairs)
        return _Slot(chunk, number, self._turns[place], Question(chunk.chunk, request))

    def _find_substitute(self, slot: _Slot) -> _Slot | None:
        for place in self._turns:
            if place in self._answered and _describe(place, slot.question) not in slot.chunk.shown:
                return _Slot(slot.chunk, slot.number, place, slot.question)
        return None

    async def _ask(self, slots: Sequence[_Slot]) -> list[_Slot]:
        """Returns the slots that failed."""
        by_judge: defaultdict[int, list[_Slot]] = defaultdict(list)
        for slot in slots:
            by_judge[slot.judge].append(slot)
            slot.chunk.shown.add(_describe(slot.judge, slot.question))
        answers = await await_all([self._ask_judge(place, own) for place, own in by_judge.items()])
        made = [
            pair for own, told in zip(by_judge.values(), answers, strict=True) for pair in zip(own, told, strict=True)
        ]
        for slot, answer in made:
            slot.chunk.readings[slot.number] = answer.reading
            if answer.reading is not None:
                slot.chunk.given.setdefault(slot.judge, []).append(answer.reading)
        return [slot for slot, answer in made if answer.reading is None]

    async def _ask_judge(self, place: int, slots: Sequence[_Slot]) -> Sequence[Answer]:
        answers = await ask_questions(
            self._judges[place], [slot.question for slot in slots], has_answered=place in self._answered
        )
        self._asked[place] += list_judgements(answers)
        if any(answer.reading is not None for answer in answers):
            self._answered.add(place)
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
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for chunk, readings in chunks:
        standings = zip(*(reading.standings for reading in readings), strict=True)
        for (one, ones), (other, others) in combinations(zip(group.locate_texts(chunk), standings, strict=True), 2):
            found[one, other].append(sum(map(compute_preference, ones, others)) / len(ones))  # halves, which are exact
    return {pair: shares[0] if len(shares) == 1 else mean(shares) for pair, shares in found.items()}


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
