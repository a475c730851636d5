"""The table of calls in docs/judging.md is what panels do."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.judging import Case, Mode, Rubric, RubricCriterion
from app.judges.panel import JudgePanel
from app.judges.scripted import Script, ScriptedJudge, by_position, by_text

RUBRIC = Rubric(
    name="test",
    version="1",
    instructions="",
    criteria=(RubricCriterion(name="quality", weight=1.0, description="", anchors={}),),
)
PAGE = Path(__file__).parents[2] / "docs" / "judging.md"


def table() -> Iterator[tuple[int, ...]]:
    """Replies, then calls: listwise, listwise in doubt, pairwise, pointwise."""
    lines = PAGE.read_text(encoding="utf-8").split("<!-- calls: read by the tests -->\n")[1].splitlines()
    for line in lines[2:]:
        if not line.startswith("|"):
            return
        yield tuple(int(cell) for cell in line.strip("| ").split("|"))


ROWS = tuple(table())


def calls(mode: Mode, script: Script, size: int, votes: int, *more: str) -> int:
    judge = ScriptedJudge(script)
    texts = [f"reply number {number:02}" for number in range(size)]
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=(*texts, *more))
    asyncio.run(JudgePanel((judge,), 0.5, mode, votes).judge(case))
    return len(judge.requests)


def fair(size: int) -> Script:
    return by_text({f"reply number {number:02}": 1.0 - number / size for number in range(size)})


def test_the_table_goes_from_one_to_sixteen() -> None:
    assert [row[0] for row in ROWS] == list(range(1, 17))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
@pytest.mark.parametrize("more", [(), ("reply number 00", "", "<think>hm</think> reply number 00 ", "<|im_end|>")])
@pytest.mark.parametrize("votes", [1, 3])
def test_calls_of_every_mode_and_size(row: tuple[int, ...], more: tuple[str, ...], votes: int) -> None:
    """With equal replies and gated ones in the group as without."""
    size, listwise, in_doubt, pairwise, pointwise = row
    assert (
        calls("listwise", fair(size), size, votes, *more),
        calls("listwise", by_position, size, votes, *more),
        calls("pairwise", fair(size), size, votes, *more),
        calls("pairwise", by_position, size, votes, *more),
        calls("pointwise", fair(size), size, votes, *more),
    ) == (
        listwise,
        in_doubt,
        pairwise if size == 1 else pairwise * votes,
        pairwise if size == 1 else pairwise * votes,
        pointwise * votes,
    )


@pytest.mark.parametrize("mode", ["listwise", "pairwise", "pointwise"])
def test_a_group_of_gated_replies_costs_nothing(mode: Mode) -> None:
    assert calls(mode, by_position, 0, 3, "", "<|im_end|>") == 0


def test_three_votes_on_a_pair_are_six_calls() -> None:
    """As the RLAIF environment of Atropos does it."""
    assert calls("pairwise", fair(2), 2, 3) == 6
