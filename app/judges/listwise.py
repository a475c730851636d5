"""Listwise mode: one judge reads the whole group at once, in mirrored orders; large groups in overlapping chunks."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Final

from app.domain.judging import Judgement
from app.judges.comparisons import Shares, pairings, preference, win_rates
from app.judges.orders import circle, mirrored_orders
from app.judges.readings import (
    BY_POSITION,
    DISAGREEMENT,
    Group,
    Reading,
    Report,
    View,
    asked,
    failed,
    kendall,
    mean,
    mean_kendall,
    read_alone,
    top_is_close,
    usable,
    view_of,
    viewed,
)
from app.ports.judges import Judge

CHUNK: Final = 8
"""Most distinct texts per question."""


@dataclass(frozen=True)
class _Chunk:
    """`readings` is null when a required judgement was invalid."""

    group: Group
    judgements: tuple[Judgement, ...]
    readings: tuple[Reading, ...] | None


async def read_listwise(judge: Judge, group: Group, votes: int = 1) -> Report:
    """`votes` is unused: doubtful groups are read again in another order, not in the same."""
    if len(group.texts) == 1:
        return await read_alone(judge, group, "listwise")
    chunks = await asyncio.gather(*(_read(judge, chunk) for chunk in chunks_of(group)))
    whole = [(chunk.group, chunk.readings) for chunk in chunks if chunk.readings is not None]
    if len(whole) < len(chunks):
        return failed(judge, [(chunk.group, judgement) for chunk in chunks for judgement in chunk.judgements])
    made = tuple(chain.from_iterable(chunk.judgements for chunk in chunks))
    return viewed(judge, made, _view(judge.name, group, whole))


def chunks_of(group: Group) -> tuple[Group, ...]:
    """The group itself up to CHUNK texts. A larger group is split into parts of at most half a chunk, and each chunk
    combines two parts, so that every part links several chunks."""
    if len(group.texts) <= CHUNK:
        return (group,)
    texts = circle(group.case.key, group.texts)
    count = -(-len(texts) // (CHUNK // 2))
    parts = [texts[place::count] for place in range(count)]
    return tuple(group.part(parts[one] + parts[other]) for one, other in pairings(count))


async def _read(judge: Judge, chunk: Group) -> _Chunk:
    """Reads a shuffled order and its reverse, and a second such pair when the first leaves doubt. A judgement without
    its mirror does not count."""
    first = await _pair(judge, chunk, 0)
    readings = _readings(chunk, first)
    if readings is None or len(chunk.texts) == 2 or not _in_doubt(readings):
        return _Chunk(chunk, first, readings)
    second = await _pair(judge, chunk, 1)
    return _Chunk(chunk, first + second, readings + (_readings(chunk, second) or ()))


async def _pair(judge: Judge, chunk: Group, pair: int) -> tuple[Judgement, ...]:
    orders = mirrored_orders(chunk.case.key, chunk.texts, pair)
    return tuple(await asyncio.gather(*(asked(judge, chunk.request(order, "listwise")) for order in orders)))


def _readings(chunk: Group, judgements: Sequence[Judgement]) -> tuple[Reading, ...] | None:
    readings = [usable(chunk, judgement) for judgement in judgements]
    return None if None in readings else tuple(reading for reading in readings if reading is not None)


def _in_doubt(readings: Sequence[Reading]) -> bool:
    standings = [reading.standings for reading in readings]
    return mean_kendall(standings) < DISAGREEMENT or top_is_close(standings)


def _view(judge: str, group: Group, chunks: Sequence[tuple[Group, tuple[Reading, ...]]]) -> View | None:
    ranked = [([reading.standings for reading in readings], readings) for _, readings in chunks]
    scored = [([reading.absolutes for reading in readings], readings) for _, readings in chunks]
    follows = _follow_position(ranked)
    return view_of(
        judge,
        group,
        chunks,
        win_rates(len(group.texts), _shares(group, chunks)),
        follows_position=follows,
        agrees=not follows and mean(_agreement(readings) for _, readings in chunks) >= DISAGREEMENT,
        # its scores follow the slots as well, so only the group's mean is kept
        levelled=follows and _follow_position(scored),
    )


def _shares(group: Group, chunks: Sequence[tuple[Group, tuple[Reading, ...]]]) -> Shares:
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for chunk, readings in chunks:
        places = group.places(chunk)
        for one, other in combinations(range(len(places)), 2):
            found[places[one], places[other]].append(
                mean(preference(reading.standings[one], reading.standings[other]) for reading in readings)
            )
    return {pair: mean(shares) for pair, shares in found.items()}


def _follow_position(chunks: Sequence[tuple[Sequence[Sequence[float]], Sequence[Reading]]]) -> bool:
    """Whether the values agree by slot rather than by text."""
    by_slot = mean(mean_kendall(list(_by_slot(values, readings))) for values, readings in chunks)
    by_text = mean(mean_kendall(values) for values, _ in chunks)
    return by_slot >= BY_POSITION and by_slot > by_text


def _by_slot(values: Sequence[Sequence[float]], readings: Sequence[Reading]) -> Iterator[tuple[float, ...]]:
    return (reading.by_slot(listed) for reading, listed in zip(readings, values, strict=True))


def _agreement(readings: Sequence[Reading]) -> float:
    """Agreement of the two judgements of a pair, or of the means of two pairs, where position bias cancels."""
    standings = [reading.standings for reading in readings]
    if len(standings) == 2:
        return kendall(*standings)
    pairs = [
        [mean(column) for column in zip(*standings[start : start + 2], strict=True)]
        for start in range(0, len(standings), 2)
    ]
    return mean_kendall(pairs)
