"""Selects completions of a group and builds the rows of a shape."""

from collections.abc import Iterator, Sequence
from typing import Final

from app.domain.exports import ExportRequest, LeftOut, StoredGroup
from app.domain.groups import Rollout
from app.service.exports.row_models import (
    DpoRow,
    KtoRow,
    Row,
    SftRow,
    build_origin,
    build_rollout_row,
    compute_value,
    export_completion,
    export_prompt,
    export_tools,
)

SFT_THRESHOLD: Final = 0.7
KTO_THRESHOLD: Final = 0.5
MIN_POSITIVE_VALUE: Final = 1e-9
"""Excludes value 0: even the best of a group may be wrong or fail a gate."""
ROUNDING_TOLERANCE: Final = 1e-9
"""Tolerance for floating-point differences such as 1.0 - 0.9 < 0.1."""
UNDECIDED_FLAGS: Final = frozenset({"low_signal", "position_dominated"})
"""Flags of groups in which the order of two completions is uncertain."""


def build_rows(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    """Rows of a group. `rollouts` are the ones that the request admits, in order."""
    if wanted.shape == "rollouts":
        places = {one.rollout_id: place for place, one in enumerate(stored.group.rollouts)}
        yield from (build_rollout_row(stored, places[one.rollout_id], one, private=wanted.private) for one in rollouts)
    elif wanted.shape == "sft":
        yield from _build_sft_rows(stored, wanted, rollouts)
    elif wanted.shape == "dpo":
        yield from _build_dpo_rows(stored, wanted, rollouts)
    else:
        yield from _build_kto_rows(stored, wanted, rollouts)


def list_rollout_ids(row: Row) -> tuple[str, ...]:
    """The rollouts that a row was built from."""
    return (row.chosen_id, row.rejected_id) if isinstance(row, DpoRow) else (row.rollout_id,)


def explain_absence(rollout: Rollout, wanted: ExportRequest) -> LeftOut:
    """Why an admitted rollout is in no row of its group."""
    if rollout.score.outcome != "scored":
        return rollout.score.outcome
    if wanted.shape == "dpo":
        return "undecided" if UNDECIDED_FLAGS & {*rollout.score.flags} else "no_pair"
    value = compute_value(rollout)
    return "below_threshold" if value is None or value < _choose_sft_threshold(wanted) else "not_best"


def _list_valued_rollouts(rollouts: Sequence[Rollout]) -> list[tuple[float, Rollout]]:
    return [(value, one) for one in rollouts if (value := compute_value(one)) is not None]


def _build_sft_rows(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    least = _choose_sft_threshold(wanted)
    chosen = [pair for pair in _list_valued_rollouts(rollouts) if pair[0] >= least]
    if wanted.top_k is not None:
        chosen = sorted(chosen, key=lambda pair: -pair[0])[: wanted.top_k]
    for value, one in chosen:
        yield SftRow(
            **dict(build_origin(stored)),
            rollout_id=one.rollout_id,
            prompt=export_prompt(stored),
            completion=export_completion(one),
            tools=export_tools(stored),
            value=value,
        )


def _choose_sft_threshold(wanted: ExportRequest) -> float:
    if wanted.threshold is not None:
        return wanted.threshold
    return SFT_THRESHOLD if wanted.top_k is None else MIN_POSITIVE_VALUE


def _build_kto_rows(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    least = KTO_THRESHOLD if wanted.threshold is None else wanted.threshold
    for value, one in _list_valued_rollouts(rollouts):
        yield KtoRow(
            **dict(build_origin(stored)),
            rollout_id=one.rollout_id,
            prompt=export_prompt(stored),
            completion=export_completion(one),
            label=value >= least,
            tools=export_tools(stored),
            value=value,
        )


def _build_dpo_rows(stored: StoredGroup, wanted: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    scored = [one for one in rollouts if one.score.reward is not None and not UNDECIDED_FLAGS & {*one.score.flags}]
    said = {one.rollout_id: export_completion(one) for one in scored}
    pairs = [
        (better, worse)
        for better in scored
        for worse in scored
        if _is_better_by_margin(better, worse, wanted.margin) and said[better.rollout_id] != said[worse.rollout_id]
    ]
    for better, worse in sorted(pairs, key=lambda pair: _read_reward(pair[1]) - _read_reward(pair[0]))[: wanted.pairs]:
        yield DpoRow(
            **dict(build_origin(stored)),
            prompt=export_prompt(stored),
            chosen=said[better.rollout_id],
            rejected=said[worse.rollout_id],
            tools=export_tools(stored),
            chosen_id=better.rollout_id,
            rejected_id=worse.rollout_id,
            chosen_reward=_read_reward(better),
            rejected_reward=_read_reward(worse),
        )


def _read_reward(rollout: Rollout) -> float:
    return rollout.score.reward or 0.0


def _is_better_by_margin(better: Rollout, worse: Rollout, margin: float) -> bool:
    """Whether the reward is higher by the margin, and neither value nor relative score says the opposite."""
    if _read_reward(better) - _read_reward(worse) < margin - ROUNDING_TOLERANCE:
        return False
    values = compute_value(better), compute_value(worse)
    standings = better.score.relative, worse.score.relative
    return all(first is None or second is None or first >= second for first, second in (values, standings))
