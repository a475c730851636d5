"""Rewards follow the preference that a request brings along, over HTTP on both sides: trainer and judge."""

import pytest

from tests.support.preferring import FEWER, MORE
from tests.support.reward_trainers import Judged

pytestmark = pytest.mark.xdist_group("one judge")

SHORT = "Knock and ask."
MIDDLE = "Knock and ask whether half past eight would do?"
LONG = "Knock one morning, bring a cake along, say that you like the trumpet, and ask for an earlier hour."


@pytest.mark.parametrize(
    ("preference", "rewards"),
    [(FEWER, [0.5625, 0.0, 1.0]), (MORE, [0.4375, 1.0, 0.0]), ("Prefer the bluest reply.", [0.5, 0.5, 0.5])],
)
def test_the_same_replies_are_ranked_as_the_preference_says_and_what_no_judge_understands_teaches_nothing(
    judged: Judged, preference: str, rewards: list[float]
) -> None:
    (task,) = judged.tasks("rlaif", 1, params={"preference": preference}, cursor=9)
    orders = (MIDDLE, LONG, SHORT), (SHORT, LONG, MIDDLE)
    told = [judged.native(task["task_id"], order) for order in orders]
    assert (told, preference in str(task)) == ([rewards, rewards[::-1]], False)
