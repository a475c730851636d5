"""What a reply commits to between answer tags."""

import asyncio

import pytest

from app.domain.errors import WorkExceeded
from app.domain.scores import Score
from app.toolkit.answers import (
    MOST_CHARACTERS,
    Committed,
    extract_committed,
    grade_committed,
    grade_committed_in_worker,
)
from tests.support.tables import read_table

TABLE = read_table(__file__, "committed.yaml", tuple[tuple[str, float, str, tuple[str, ...]], ...])

NONE = Committed(None, ("no_answer",))
DIFFER = Committed(None, ("conflicting_answers",))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<answer>7</answer>", Committed("7")),
        ("So:\n<ANSWER>\n 7 \n</Answer> That is it.", Committed("7")),
        ("<answer>7</answer> and again <answer> 7</answer>", Committed("7")),
        ("<answer>6</answer> no, <answer>7</answer>", DIFFER),
        ("<answer>…</answer> <answer> </answer> <answer>7</answer>", Committed("7")),
        ("between <answer> and </answer>: <answer>7</answer>", DIFFER),
        *(("<answer>7", NONE), ("7</answer>", NONE), ("</answer>7<answer>", NONE)),
        ("<answer>6<answer>7</answer></answer>", Committed("7")),
        ("<answer >7</answer>", NONE),
        ("the answer is 7", NONE),
        ("", NONE),
        ("<think><answer>7</answer></think>", NONE),
        ("<think><answer>6</answer></think><answer>7</answer>", Committed("7")),
        ("<think>hm <answer>7</answer>", Committed(None, ("no_answer", "unfinished_thinking"))),
        ("<answer>7</answer><|im_end|><answer>8</answer>", Committed("7")),
        (f"<answer>{'7' * MOST_CHARACTERS}</answer>", Committed("7" * MOST_CHARACTERS)),
        (f"<answer>{'7' * (MOST_CHARACTERS + 1)}</answer>", Committed(None, ("unreadable_answer",))),
        ("<answer>\x00\ud800</answer>", Committed("\x00\ud800")),
    ],
)
def test_what_is_committed(reply: str, expected: Committed) -> None:
    assert extract_committed(reply) == expected


@pytest.mark.parametrize(("reply", "reward", "rationale", "flags"), TABLE)
def test_what_it_earns(reply: str, reward: float, rationale: str, flags: tuple[str, ...]) -> None:
    score = grade_committed(reply, lambda answer: "" if answer == "7" else "it is not seven")
    assert (score.reward, score.rationale, score.flags) == (reward, rationale, flags)


def test_what_is_looked_at_elsewhere_fails_alone() -> None:
    async def fault(answer: str) -> str:
        if answer == "9":
            raise WorkExceeded("it took too long", limit="seconds")
        return "" if answer == "7" else "it is not seven"

    replies = ["<answer>7</answer>", "<answer>9</answer>", "7"]
    assert asyncio.run(grade_committed_in_worker(replies, fault)) == [
        Score.exact(True, rationale="correct"),
        Score.unscored("verifier_killed", rationale="it took too long"),
        grade_committed("7", lambda _: ""),
    ]
