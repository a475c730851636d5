"""Selects completions of a group and builds the rows of a shape."""

from collections.abc import Iterator, Sequence
from typing import Final

from app.domain.exports import ExportRequest, StoredGroup
from app.domain.groups import Rollout
from app.service.exports.rows import (
    DpoRow,
    KtoRow,
    Row,
    SftRow,
    completion_of,
    origin_of,
    prompt_of,
    rollout_row,
    tools_of,
    value_of,
)

GOOD: Final = 0.7
DESIRABLE: Final = 0.5
ABOVE_NOTHING: Final = 1e-9
"""Excludes value 0: even the best of a group may be wrong or fail a gate."""
ROUNDING: Final = 1e-9
"""Tolerance for floating-point differences such as 1.0 - 0.9 < 0.1."""
UNDECIDED: Final = frozenset({"low_signal", "position_dominated"})
"""Flags of groups in which the order of two completions is uncertain."""


def rows_of(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    """Rows of a group. `rollouts` are the ones that the request admits, in order."""
    if wanted.shape == "rollouts":
        yield from (rollout_row(stored, one, private=wanted.private) for one in rollouts)
    elif wanted.shape == "sft":
        yield from _good(stored, wanted, rollouts)
    elif wanted.shape == "dpo":
        yield from _pairs(stored, wanted, rollouts)
    else:
        yield from _verdicts(stored, wanted, rollouts)


def _valued(rollouts: Sequence[Rollout]) -> list[tuple[float, Rollout]]:
    return [(value, one) for one in rollouts if (value := value_of(one)) is not None]


def _good(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    least = wanted.threshold
    if least is None:
        least = GOOD if wanted.top_k is None else ABOVE_NOTHING
    chosen = [pair for pair in _valued(rollouts) if pair[0] >= least]
    if wanted.top_k is not None:
        chosen = sorted(chosen, key=lambda pair: -pair[0])[: wanted.top_k]
    for value, one in chosen:
        yield SftRow(
            **dict(origin_of(stored)),
            rollout_id=one.rollout_id,
            prompt=prompt_of(stored),
            completion=completion_of(one),
            tools=tools_of(stored),
            value=value,
        )


def _verdicts(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    least = DESIRABLE if wanted.threshold is None else wanted.threshold
    for value, one in _valued(rollouts):
        yield KtoRow(
            **dict(origin_of(stored)),
            rollout_id=one.rollout_id,
            prompt=prompt_of(stored),
            completion=completion_of(one),
            label=value >= least,
            tools=tools_of(stored),
            value=value,
        )


def _pairs(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    scored = [one for one in rollouts if one.score.reward is not None and not UNDECIDED & {*one.score.flags}]
    said = {one.rollout_id: completion_of(one) for one in scored}
    pairs = [
        (better, worse)
        for better in scored
        for worse in scored
        if _beats(better, worse, wanted.margin) and said[better.rollout_id] != said[worse.rollout_id]
    ]
    for better, worse in sorted(pairs, key=lambda pair: _reward(pair[1]) - _reward(pair[0]))[: wanted.pairs]:
        yield DpoRow(
            **dict(origin_of(stored)),
            prompt=prompt_of(stored),
            chosen=said[better.rollout_id],
            rejected=said[worse.rollout_id],
            tools=tools_of(stored),
            chosen_id=better.rollout_id,
            rejected_id=worse.rollout_id,
            chosen_reward=_reward(better),
            rejected_reward=_reward(worse),
        )


def _reward(rollout: Rollout) -> float:
    return rollout.score.reward or 0.0


def _beats(better: Rollout, worse: Rollout, margin: float) -> bool:
    """Whether the reward is higher by the margin, and neither value nor relative score says the opposite."""
    if _reward(better) - _reward(worse) < margin - ROUNDING:
        return False
    values = value_of(better), value_of(worse)
    standings = better.score.relative, worse.score.relative
    return all(first is None or second is None or first >= second for first, second in (values, standings))
