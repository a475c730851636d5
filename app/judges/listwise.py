"""Listwise mode: one judge reads the whole group at once, in mirrored orders; large groups in overlapping chunks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from app.judges.aggregation import (
    BY_POSITION,
    DISAGREEMENT,
    CandidateGroup,
    GroupResult,
    JudgedGroup,
    JudgeView,
    UsableJudgement,
    build_failed_result,
    build_result,
    build_view,
    is_top_contested,
    mean,
    mean_kendall_tau,
)
from app.judges.comparisons import (
    Pairings,
    Shares,
    compute_preference,
    compute_win_rates,
    list_pairings,
    suffice_for_order,
)
from app.judges.presentation_order import arrange_circle, build_mirrored_orders
from app.judges.questions import Question, ask_questions, list_judgements, read_lone_text
from app.ports.judges import Judge

MOST_READINGS: Final = 4
"""Of a group, or of a chunk of it, by one judge."""
CHUNK: Final = 8
"""Most distinct texts per question."""


async def read_listwise(judge: Judge, group: CandidateGroup, *, most_readings: int = MOST_READINGS) -> GroupResult:
    """Doubtful groups are read again in another order, not in the same. A reading without its mirror does not count,
    unless `most_readings` is 1. Chunks that fail are left out where the others are enough for an order."""
    if len(group.texts) == 1:
        return await read_lone_text(judge, group, "listwise")
    chunks = split_into_chunks(group)
    first = await _read_orders(judge, chunks, 0, min(2, most_readings))
    again = chunks if most_readings > 2 else ()  # a pair of mirrored orders
    doubtful = [chunk for chunk in again if len(chunk.texts) > 2 and _is_in_doubt(first.readings.get(chunk.texts, ()))]
    second = await _read_orders(judge, doubtful, 1, 2, has_answered=True)
    asked = first.asked + second.asked
    read = [
        (chunk, first.readings[chunk.texts] + second.readings.get(chunk.texts, ()))
        for chunk in chunks
        if chunk.texts in first.readings
    ]
    if not suffice_for_order(_list_pairs(group, chunks), _list_pairs(group, [chunk for chunk, _ in read])):
        return build_failed_result(judge, asked)
    view = _aggregate_chunks(judge.name, group, read, lacks_readings=len(read) < len(chunks))
    return build_result(judge, [judgement for _, judgement in asked], view)


def split_into_chunks(group: CandidateGroup) -> tuple[CandidateGroup, ...]:
    """The group itself up to CHUNK texts. A larger group is split into parts of at most half a chunk, and each chunk
    combines two parts, so that every part links several chunks."""
    if len(group.texts) <= CHUNK:
        return (group,)
    texts = arrange_circle(group.case.key, group.texts)
    count = -(-len(texts) // (CHUNK // 2))
    parts = [texts[place::count] for place in range(count)]
    return tuple(group.select_texts(parts[one] + parts[other]) for one, other in list_pairings(count))


@dataclass(frozen=True)
class _OrderReadings:
    """All that was asked, and by the texts of a chunk its readings where all can be used."""

    asked: tuple[JudgedGroup, ...]
    readings: Mapping[tuple[str, ...], tuple[UsableJudgement, ...]]


async def _read_orders(
    judge: Judge, chunks: Sequence[CandidateGroup], pair: int, count: int, *, has_answered: bool = False
) -> _OrderReadings:
    """Reads each chunk in a shuffled order, and with a `count` of 2 in its reverse."""
    questions = [
        Question(chunk, chunk.build_request(order, "listwise", mirrored=count == len(orders)))
        for chunk in chunks
        for orders in [build_mirrored_orders(chunk.case.key, chunk.texts, pair)]
        for order in orders[:count]
    ]
    answers = await ask_questions(judge, questions, has_answered=has_answered)
    found: dict[tuple[str, ...], tuple[UsableJudgement, ...]] = {}
    for place in range(0, len(answers), count):
        given = answers[place : place + count]
        usable = tuple(answer.reading for answer in given if answer.reading is not None)
        if len(usable) == count:
            found[given[0].part.texts] = usable
    return _OrderReadings(list_judgements(answers), found)


def _list_pairs(group: CandidateGroup, chunks: Sequence[CandidateGroup]) -> Pairings:
    return tuple(sorted({pair for chunk in chunks for pair in combinations(group.locate_texts(chunk), 2)}))


def _is_in_doubt(readings: Sequence[UsableJudgement]) -> bool:
    if not readings:
        return False
    standings = [reading.standings for reading in readings]
    return mean_kendall_tau(standings) < DISAGREEMENT or is_top_contested(standings)


def _aggregate_chunks(
    judge: str,
    group: CandidateGroup,
    chunks: Sequence[tuple[CandidateGroup, tuple[UsableJudgement, ...]]],
    lacks_readings: bool,
) -> JudgeView | None:
    return build_view(
        judge,
        group,
        chunks,
        compute_win_rates(len(group.texts), _compute_shares(group, chunks)),
        follows_position=_follows_position([readings for _, readings in chunks]),
        lacks_readings=lacks_readings,
    )


def _compute_shares(
    group: CandidateGroup, chunks: Sequence[tuple[CandidateGroup, tuple[UsableJudgement, ...]]]
) -> Shares:
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for chunk, readings in chunks:
        places = group.locate_texts(chunk)
        for one, other in combinations(range(len(places)), 2):
            found[places[one], places[other]].append(
                mean(compute_preference(reading.standings[one], reading.standings[other]) for reading in readings)
            )
    return {pair: mean(shares) for pair, shares in found.items()}


def _follows_position(chunks: Sequence[Sequence[UsableJudgement]]) -> bool:
    """Whether the standings agree by slot rather than by text. One reading cannot tell."""
    if any(len(readings) == 1 for readings in chunks):
        return False
    by_slot = mean(
        mean_kendall_tau([reading.order_by_slot(reading.standings) for reading in readings]) for readings in chunks
    )
    by_text = mean(mean_kendall_tau([reading.standings for reading in readings]) for readings in chunks)
    return by_slot >= BY_POSITION and by_slot > by_text
