"""What a reply commits to between answer tags."""

import pytest

from app.domain.errors import WorkExceeded
from app.domain.scores import Score
from app.domain.values import Frozen
from app.toolkit.answers import (
    MOST_CHARACTERS,
    Committed,
    extract_committed,
    grade_committed,
    grade_committed_in_worker,
)
from tests.support.tables import read_table


class Replies(Frozen):
    """The tables of committed.yaml, which says what each holds."""

    committed: tuple[tuple[str, Committed], ...]
    earned: tuple[tuple[str, float, str, tuple[str, ...]], ...]


REPLIES = read_table(__file__, "committed.yaml", Replies)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        *REPLIES.committed,
        (f"<answer>{'7' * MOST_CHARACTERS}</answer>", Committed("7" * MOST_CHARACTERS)),
        (f"<answer>{'7' * (MOST_CHARACTERS + 1)}</answer>", Committed(None, ("unreadable_answer",))),
        ("<answer>\x00\ud800</answer>", Committed("\x00\ud800")),
    ],
)
def test_what_is_committed(reply: str, expected: Committed) -> None:
    assert extract_committed(reply) == expected


@pytest.mark.parametrize(("reply", "reward", "rationale", "flags"), REPLIES.earned)
def test_what_it_earns(reply: str, reward: float, rationale: str, flags: tuple[str, ...]) -> None:
    score = grade_committed(reply, lambda answer: "" if answer == "7" else "it is not seven")
    assert (score.reward, score.rationale, score.flags) == (reward, rationale, flags)


async def test_what_is_looked_at_elsewhere_fails_alone() -> None:
    async def fault(answer: str) -> str:
        if answer == "9":
            raise WorkExceeded("it took too long", limit="seconds")
        return "" if answer == "7" else "it is not seven"

    replies = ["<answer>7</answer>", "<answer>9</answer>", "7"]
    assert await grade_committed_in_worker(replies, fault) == [
        Score.exact(True, rationale="correct"),
        Score.unscored("verifier_killed", rationale="it took too long"),
        grade_committed("7", lambda _: ""),
    ]
