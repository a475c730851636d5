"""The table of calls in docs/judging.md is what panels do."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from app.domain.judging import Case, JudgeRequest, Mode, Rubric, RubricCriterion
from app.judges.aggregation import CandidateGroup
from app.judges.chat_judge import Script, ScriptedJudge, score_by_position, score_by_text
from app.judges.modes import split_into_chunks
from app.judges.panel import JudgePanel

MODES: tuple[Mode, ...] = get_args(Mode)

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


def replies(size: int) -> tuple[str, ...]:
    return tuple(f"reply number {number:02}" for number in range(size))


def calls(mode: Mode, script: Script, size: int, votes: int, *more: str) -> int:
    judge = ScriptedJudge(script)
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=(*replies(size), *more))
    asyncio.run(JudgePanel((judge,), 0.5, mode, votes).judge(case))
    return len(judge.requests)


def fair(size: int) -> Script:
    return score_by_text({text: 1.0 - number / size for number, text in enumerate(replies(size))})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
@pytest.mark.parametrize(("more", "votes"), [((), 3), (("reply number 00", "", "<|im_end|>"), 1)])
def test_calls_of_every_mode_and_size(row: tuple[int, ...], more: tuple[str, ...], votes: int) -> None:
    """With equal replies and gated ones in the group as without."""
    size, listwise, in_doubt, pairwise, pointwise = row
    assert (
        calls("listwise", fair(size), size, votes, *more),
        calls("listwise", score_by_position, size, votes, *more),
        calls("pairwise", fair(size), size, votes, *more),
        calls("pairwise", score_by_position, size, votes, *more),
        calls("pointwise", fair(size), size, votes, *more),
    ) == (
        listwise,
        in_doubt,
        pairwise if size == 1 else pairwise * votes,
        pairwise if size == 1 else pairwise * votes,
        pointwise * votes,
    )


def test_judges_share_the_orders_of_a_list_and_multiply_other_calls() -> None:
    """Three judges make four readings: orders come in pairs."""
    assert sorted(shared("listwise", 1)) == [1, 1, 1]
    assert [sorted(shared("listwise", size)) for size in (2, 5, 9)] == [[1, 1, 2]] * 3
    assert {mode: shared(mode, 5) for mode in MODES[1:]} == {
        mode: [calls(mode, fair(5), 5, 1)] * 3 for mode in MODES[1:]
    }


def shared(mode: Mode, size: int) -> list[int]:
    judges = [ScriptedJudge(fair(size), name) for name in ("one", "two", "three")]
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=replies(size))
    asyncio.run(JudgePanel(judges, 0.5, mode).judge(case))
    return [len(judge.requests) for judge in judges]


def test_only_the_chunks_in_doubt_are_read_again() -> None:
    """Of the three chunks of seventeen replies one has a judge that follows position."""
    texts = replies(17)
    chunks = split_into_chunks(
        CandidateGroup.from_texts(Case(key="k", rubric=RUBRIC, document={}, candidates=texts), texts), 16
    )

    def torn(request: JudgeRequest, count: int) -> Mapping[str, float] | str:
        doubtful = {candidate.text for candidate in request.candidates} == set(chunks[0].texts)
        return (score_by_position if doubtful else fair(17))(request, count)

    assert calls("listwise", torn, 17, 1) == 2 * len(chunks) + 2 == 8
