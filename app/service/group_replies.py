"""Builds replies from groups, and updates the scores of a group. Pure functions."""

from collections.abc import Sequence

from app.domain.groups import Group, Rollout
from app.domain.rewards import combine_outcomes, compute_statistics
from app.domain.scores import Score
from app.service.request_models import GroupReply


def build_reply(group: Group) -> GroupReply:
    scores = tuple(rollout.score for rollout in group.rollouts)
    statistics = compute_statistics(scores)
    return GroupReply(
        group_id=group.group_id,
        task_id=group.task_id,
        outcome=group.outcome,
        rewards=tuple(score.reward for score in scores),
        scores=scores,
        mean=statistics.mean,
        std=statistics.std,
        advantages=statistics.advantages,
        low_signal=statistics.low_signal,
        flags=group.flags,
    )


def merge_scores(group: Group, scores: Sequence[Score]) -> Group:
    """The group with these scores, in order, for rollouts without a score."""
    given = iter(scores)
    return _replace_scores(
        group, [one.score if one.score.outcome == "scored" else next(given) for one in group.rollouts]
    )


def mark_pending(group: Group) -> Group:
    """The group with all rollouts without a score set to pending, also in a retry."""
    return merge_scores(group, (Score.pending(),) * len(group.rollouts))


def list_scores(group: Group) -> list[Score]:
    return [rollout.score for rollout in group.rollouts]


def _replace_scores(group: Group, scores: Sequence[Score]) -> Group:
    rollouts = tuple(
        Rollout(rollout_id=rollout.rollout_id, completion=rollout.completion, score=score)
        for rollout, score in zip(group.rollouts, scores, strict=True)
    )
    return group.model_copy(update={"rollouts": rollouts, "outcome": combine_outcomes(scores)})
