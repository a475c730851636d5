"""Listwise mode: one judge reads the whole group at once, in mirrored orders; large groups in overlapping chunks."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Final

from app.domain.judging import Judgement
from app.judges.aggregation import (
    BY_POSITION,
    DISAGREEMENT,
    CandidateGroup,
    GroupResult,
    JudgeView,
    UsableJudgement,
    ask_judge,
    build_failed_result,
    build_result,
    build_view,
    is_top_contested,
    kendall_tau,
    mean,
    mean_kendall_tau,
    read_lone_text,
    to_usable,
)
from app.judges.comparisons import Shares, compute_preference, compute_win_rates, list_pairings
from app.judges.presentation_order import arrange_circle, build_mirrored_orders
from app.ports.judges import Judge

CHUNK: Final = 8
"""Most distinct texts per question."""


@dataclass(frozen=True)
class _Chunk:
    """`readings` is null when a required judgement was invalid."""

    group: CandidateGroup
    judgements: tuple[Judgement, ...]
    readings: tuple[UsableJudgement, ...] | None


async def read_listwise(judge: Judge, group: CandidateGroup, votes: int = 1) -> GroupResult:
    """`votes` is unused: doubtful groups are read again in another order, not in the same."""
    if len(group.texts) == 1:
        return await read_lone_text(judge, group, "listwise")
    chunks = await asyncio.gather(*(_read_chunk(judge, chunk) for chunk in split_into_chunks(group)))
    whole = [(chunk.group, chunk.readings) for chunk in chunks if chunk.readings is not None]
    if len(whole) < len(chunks):
        return build_failed_result(
            judge, [(chunk.group, judgement) for chunk in chunks for judgement in chunk.judgements]
        )
    made = tuple(chain.from_iterable(chunk.judgements for chunk in chunks))
    return build_result(judge, made, _aggregate_chunks(judge.name, group, whole))


def split_into_chunks(group: CandidateGroup) -> tuple[CandidateGroup, ...]:
    """The group itself up to CHUNK texts. A larger group is split into parts of at most half a chunk, and each chunk
    combines two parts, so that every part links several chunks."""
    if len(group.texts) <= CHUNK:
        return (group,)
    texts = arrange_circle(group.case.key, group.texts)
    count = -(-len(texts) // (CHUNK // 2))
    parts = [texts[place::count] for place in range(count)]
    return tuple(group.select_texts(parts[one] + parts[other]) for one, other in list_pairings(count))


async def _read_chunk(judge: Judge, chunk: CandidateGroup) -> _Chunk:
    """Reads a shuffled order and its reverse, and a second such pair when the first leaves doubt. A judgement without
    its mirror does not count."""
    first = await _read_mirrored_pair(judge, chunk, 0)
    readings = _collect_readings(chunk, first)
    if readings is None or len(chunk.texts) == 2 or not _is_in_doubt(readings):
        return _Chunk(chunk, first, readings)
    second = await _read_mirrored_pair(judge, chunk, 1)
    return _Chunk(chunk, first + second, readings + (_collect_readings(chunk, second) or ()))


async def _read_mirrored_pair(judge: Judge, chunk: CandidateGroup, pair: int) -> tuple[Judgement, ...]:
    orders = build_mirrored_orders(chunk.case.key, chunk.texts, pair)
    return tuple(await asyncio.gather(*(ask_judge(judge, chunk.build_request(order, "listwise")) for order in orders)))


def _collect_readings(chunk: CandidateGroup, judgements: Sequence[Judgement]) -> tuple[UsableJudgement, ...] | None:
    readings = [to_usable(chunk, judgement) for judgement in judgements]
    return None if None in readings else tuple(reading for reading in readings if reading is not None)


def _is_in_doubt(readings: Sequence[UsableJudgement]) -> bool:
    standings = [reading.standings for reading in readings]
    return mean_kendall_tau(standings) < DISAGREEMENT or is_top_contested(standings)


def _aggregate_chunks(
    judge: str, group: CandidateGroup, chunks: Sequence[tuple[CandidateGroup, tuple[UsableJudgement, ...]]]
) -> JudgeView | None:
    ranked = [([reading.standings for reading in readings], readings) for _, readings in chunks]
    scored = [([reading.absolutes for reading in readings], readings) for _, readings in chunks]
    follows = _follows_position(ranked)
    return build_view(
        judge,
        group,
        chunks,
        compute_win_rates(len(group.texts), _compute_shares(group, chunks)),
        follows_position=follows,
        agrees=not follows and mean(_compute_agreement(readings) for _, readings in chunks) >= DISAGREEMENT,
        # its scores follow the slots as well, so only the group's mean is kept
        levelled=follows and _follows_position(scored),
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


def _follows_position(chunks: Sequence[tuple[Sequence[Sequence[float]], Sequence[UsableJudgement]]]) -> bool:
    """Whether the values agree by slot rather than by text."""
    by_slot = mean(mean_kendall_tau(list(_iterate_by_slot(values, readings))) for values, readings in chunks)
    by_text = mean(mean_kendall_tau(values) for values, _ in chunks)
    return by_slot >= BY_POSITION and by_slot > by_text


def _iterate_by_slot(
    values: Sequence[Sequence[float]], readings: Sequence[UsableJudgement]
) -> Iterator[tuple[float, ...]]:
    return (reading.order_by_slot(listed) for reading, listed in zip(readings, values, strict=True))


def _compute_agreement(readings: Sequence[UsableJudgement]) -> float:
    """Agreement of the two judgements of a pair, or of the means of two pairs, where position bias cancels."""
    standings = [reading.standings for reading in readings]
    if len(standings) == 2:
        return kendall_tau(*standings)
    pairs = [
        [mean(column) for column in zip(*standings[start : start + 2], strict=True)]
        for start in range(0, len(standings), 2)
    ]
    return mean_kendall_tau(pairs)
