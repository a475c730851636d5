"""Pointwise mode: one judge reads each text by itself, once per vote."""

import asyncio
from collections.abc import Sequence
from itertools import chain, combinations

from app.domain.judging import Judgement
from app.domain.rewards import apply_bounds
from app.judges.aggregation import (
    DISAGREEMENT,
    CandidateGroup,
    GroupResult,
    JudgeView,
    UsableJudgement,
    ask_judge,
    build_failed_result,
    build_result,
    build_view,
    drop_uneven_criteria,
    mean_kendall_tau,
    read_lone_text,
    to_usable,
)
from app.judges.comparisons import compute_preference, compute_win_rates
from app.ports.judges import Judge


async def read_pointwise(judge: Judge, group: CandidateGroup, votes: int = 1) -> GroupResult:
    """Ranks follow the texts' mean scores. Each text needs at least one usable judgement."""
    if len(group.texts) == 1:
        return await read_lone_text(judge, group, "pointwise", votes)
    parts = [group.select_texts((text,)) for text in group.texts]
    made = await asyncio.gather(*(_read_text(judge, part, votes) for part in parts))
    readings = [
        tuple(to_usable(part, judgement) for judgement in judgements)
        for part, judgements in zip(parts, made, strict=True)
    ]
    if not all(any(listed) for listed in readings):
        made_of = [(part, judgement) for part, judgements in zip(parts, made, strict=True) for judgement in judgements]
        return build_failed_result(judge, made_of)
    return build_result(judge, tuple(chain.from_iterable(made)), _aggregate_votes(judge.name, group, parts, readings))


async def _read_text(judge: Judge, part: CandidateGroup, votes: int) -> tuple[Judgement, ...]:
    requests = [part.build_request(part.texts, "pointwise", vote) for vote in range(votes)]
    return tuple(await asyncio.gather(*(ask_judge(judge, request) for request in requests)))


def _aggregate_votes(
    judge: str,
    group: CandidateGroup,
    parts: Sequence[CandidateGroup],
    readings: Sequence[Sequence[UsableJudgement | None]],
) -> JudgeView | None:
    known = [tuple(reading for reading in listed if reading is not None) for listed in readings]
    view = build_view(judge, group, list(zip(parts, known, strict=True)), None)
    if view is None:
        return None
    shares = {
        (one, other): compute_preference(view.absolutes[one], view.absolutes[other])
        for one, other in combinations(range(len(group.texts)), 2)
    }
    return build_view(
        judge,
        group,
        list(zip(parts, known, strict=True)),
        compute_win_rates(len(group.texts), shares),
        agrees=_do_votes_agree(group, readings),
    )


def _do_votes_agree(group: CandidateGroup, readings: Sequence[Sequence[UsableJudgement | None]]) -> bool:
    """Agreement of the votes that are complete for every text. A single vote always agrees."""
    rubric = group.case.rubric
    complete = [
        group.compute_absolutes(
            drop_uneven_criteria([apply_bounds(rubric, reading.verdicts[0]) for reading in vote if reading is not None])
        )
        for vote in zip(*readings, strict=True)
        if None not in vote
    ]
    return len(complete) < 2 or mean_kendall_tau(complete) >= DISAGREEMENT
