"""How a group stands: outcomes, scores that arrive, and what is owed while it is scored again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.groups import Group, Rollout
from app.domain.scores import Outcome, Score
from app.domain.tasks import Completion
from app.service.requests import GroupReply
from app.service.scoring import build_reply

RIGHT, WRONG = Score.exact(True), Score.exact(False)
PENDING, FAILED = Score.pending(), Score.unscored("judge_failed", "asleep")


def group_of(*scores: Score, outcome: Outcome = "pending") -> Group:
    return Group(
        group_id="group_1",
        task_id="task_1",
        environment="toy",
        run="a",
        lease_id=None,
        policy=None,
        purpose="train",
        outcome=outcome,
        flags=("late",),
        rollouts=tuple(
            Rollout(rollout_id=f"group_1-{place}", completion=Completion(text=str(place)), score=score)
            for place, score in enumerate(scores)
        ),
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("before", "given_", "after", "outcome"),
    [
        ((PENDING, PENDING), (RIGHT, WRONG), (RIGHT, WRONG), "scored"),
        ((PENDING, PENDING), (RIGHT, FAILED), (RIGHT, FAILED), "unscored"),
        ((PENDING, PENDING), (FAILED, PENDING), (FAILED, PENDING), "pending"),
        ((RIGHT, FAILED, WRONG, PENDING), (WRONG, RIGHT), (RIGHT, WRONG, WRONG, RIGHT), "scored"),
        ((RIGHT, WRONG), (), (RIGHT, WRONG), "scored"),
    ],
)
def test_scores_go_to_those_that_had_none(
    before: tuple[Score, ...], given_: tuple[Score, ...], after: tuple[Score, ...], outcome: Outcome
) -> None:
    assert group_of(*before).merge_scores(given_) == group_of(*after, outcome=outcome)


def test_a_retry_is_owed_scores_for_what_has_none() -> None:
    assert group_of(RIGHT, FAILED, outcome="unscored").mark_pending() == group_of(RIGHT, PENDING, outcome="pending")


@given(before=st.lists(st.sampled_from([RIGHT, WRONG, PENDING, FAILED]), min_size=1, max_size=8))
def test_what_was_scored_never_changes(before: list[Score]) -> None:
    group = group_of(*before)
    for changed in (group.mark_pending(), group.merge_scores([WRONG] * len(before))):
        kept = [after for was, after in zip(before, changed.scores, strict=True) if was.outcome == "scored"]
        assert kept == [score for score in before if score.outcome == "scored"]


def test_a_reply_says_it_all_in_the_order_of_the_completions() -> None:
    assert build_reply(group_of(RIGHT, FAILED, RIGHT, outcome="unscored")) == GroupReply(
        group_id="group_1",
        task_id="task_1",
        outcome="unscored",
        rewards=(1.0, None, 1.0),
        scores=(RIGHT, FAILED, RIGHT),
        mean=1.0,
        std=0.0,
        advantages=(0.0, None, 0.0),
        low_signal=True,
        lag=None,
        flags=("late",),
    )
