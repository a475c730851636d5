"""Pointwise mode: one judge reads each text by itself, once per vote."""

import asyncio
from collections.abc import Sequence
from itertools import chain, combinations

from app.domain.judging import Judgement
from app.domain.rewards import bounded
from app.judges.comparisons import preference, win_rates
from app.judges.readings import (
    DISAGREEMENT,
    Group,
    Reading,
    Report,
    View,
    asked,
    comparable,
    failed,
    mean_kendall,
    read_alone,
    usable,
    view_of,
    viewed,
)
from app.ports.judges import Judge


async def read_pointwise(judge: Judge, group: Group, votes: int = 1) -> Report:
    """Ranks follow the texts' mean scores. Each text needs at least one usable judgement."""
    if len(group.texts) == 1:
        return await read_alone(judge, group, "pointwise", votes)
    parts = [group.part((text,)) for text in group.texts]
    made = await asyncio.gather(*(_read(judge, part, votes) for part in parts))
    readings = [
        tuple(usable(part, judgement) for judgement in judgements) for part, judgements in zip(parts, made, strict=True)
    ]
    if not all(any(listed) for listed in readings):
        made_of = [(part, judgement) for part, judgements in zip(parts, made, strict=True) for judgement in judgements]
        return failed(judge, made_of)
    return viewed(judge, tuple(chain.from_iterable(made)), _view(judge.name, group, parts, readings))


async def _read(judge: Judge, part: Group, votes: int) -> tuple[Judgement, ...]:
    requests = [part.request(part.texts, "pointwise", vote) for vote in range(votes)]
    return tuple(await asyncio.gather(*(asked(judge, request) for request in requests)))


def _view(
    judge: str, group: Group, parts: Sequence[Group], readings: Sequence[Sequence[Reading | None]]
) -> View | None:
    known = [tuple(reading for reading in listed if reading is not None) for listed in readings]
    view = view_of(judge, group, list(zip(parts, known, strict=True)), None)
    if view is None:
        return None
    shares = {
        (one, other): preference(view.absolutes[one], view.absolutes[other])
        for one, other in combinations(range(len(group.texts)), 2)
    }
    return view_of(
        judge,
        group,
        list(zip(parts, known, strict=True)),
        win_rates(len(group.texts), shares),
        agrees=_votes_agree(group, readings),
    )


def _votes_agree(group: Group, readings: Sequence[Sequence[Reading | None]]) -> bool:
    """Agreement of the votes that are complete for every text. A single vote always agrees."""
    rubric = group.case.rubric
    complete = [
        group.absolutes(comparable([bounded(rubric, reading.verdicts[0]) for reading in vote if reading is not None]))
        for vote in zip(*readings, strict=True)
        if None not in vote
    ]
    return len(complete) < 2 or mean_kendall(complete) >= DISAGREEMENT
