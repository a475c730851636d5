"""The worked example of docs/reward.md and its drawing, computed by the panel itself."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import variance

import pytest

from app.domain.judging import Case, Defect, GateFacts, Judgement, JudgeRequest, Verdict, summarise_scores
from app.domain.scores import Score, combine
from app.envs.npc_arena.environment import NpcArena
from app.judges.aggregation import mean, normalise_ranks, space_as_normal
from app.judges.panel import JudgePanel

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reward.md").read_text(encoding="utf-8")
DRAWING = (DOCS / "pictures" / "reward.svg").read_text(encoding="utf-8")
RUBRIC = NpcArena.rubric
REPLIES = {"A": "Keys I have many.", "B": "What key?", "C": "Under the hearth.", "D": "As an AI language model, no."}
SCORES = {
    "A": ((4, 4, 4, None, 3, 4), (3, 4, 4, None, 3, 4)),
    "B": ((2, 3, 3, None, 3, 4), (2, 3, 3, None, 2, 4)),
    "C": ((3, 3, 0, None, 4, 3), (3, 3, 1, None, 4, 3)),
}
RANKINGS = ("ABC", "ACB")


class ExampleJudge:
    name = "example"
    model = "example-1"
    digest = ""

    def __init__(self) -> None:
        self.readings = 0

    async def judge(self, request: JudgeRequest) -> Judgement:
        reading, self.readings = self.readings, self.readings + 1
        letters = {text: letter for letter, text in REPLIES.items()}
        ids = {letters[candidate.text]: candidate.id for candidate in request.candidates}
        names = [criterion.name for criterion in request.rubric.criteria]
        return Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(ids.values()),
            verdicts=tuple(
                Verdict(
                    candidate=name,
                    scores={
                        n: None if score is None else score / 4
                        for n, score in zip(names, SCORES[letter][reading % 2], strict=True)
                    },
                    defects=(Defect(code="secret_leak", quote="hearth"),)
                    if (letter, reading) in {("C", 0), ("C", 1), ("C", 2)}
                    else (),
                )
                for letter, name in ids.items()
            ),
            ranking=tuple((ids[letter],) for letter in RANKINGS[reading % 2] if letter in ids),
        )


def judge_example() -> tuple[ExampleJudge, Sequence[Score]]:
    assert RUBRIC is not None
    case = Case(key="k", rubric=RUBRIC, document={}, gates=GateFacts(speaker="Hob"), candidates=tuple(REPLIES.values()))
    judge = ExampleJudge()
    return judge, asyncio.run(JudgePanel((judge,), 0.5).judge(case)).scores


def compute_ranks() -> tuple[float, ...]:
    """The mean rank of each reply that the judge saw."""
    readings = [normalise_ranks([(letter,) for letter in ranking]) for ranking in RANKINGS]
    return tuple(mean(reading[letter] for reading in readings) for letter in "ABC")


def build_rows(scores: Sequence[Score]) -> Iterator[tuple[str, ...]]:
    """The table of the page: each step of the formula, for each reply."""
    ranks = compute_ranks()
    spaced = space_as_normal(ranks)
    for place, letter in enumerate("ABC"):
        score = scores[place]
        assert score.absolute is not None
        assert score.relative is not None
        figures = (score.absolute, ranks[place], spaced[place], score.relative)
        mixed = combine(1.0, score.absolute, score.relative, 0.5)
        cap = "" if score.cap is None else f"{score.cap:.1f}"
        yield (
            letter,
            f"{score.gate:.0f}",
            *(f"{figure:.3f}" for figure in (*figures, mixed)),
            cap,
            f"{score.reward:.3f}",
        )
    yield "D", f"{scores[3].gate:.0f}", "", "", "", "", "", "", f"{scores[3].reward:.3f}"


def test_the_figures_of_the_page() -> None:
    judge, scores = judge_example()
    statistics = summarise_scores(scores)

    assert judge.readings == 4
    assert [score.flags for score in scores] == [(), (), ("secret_leak",), ("breaks_character",)]
    bold = [float(figure) for figure in re.findall(r"\*\*([0-9.]+)\*\*", PAGE)]
    figures = [scores[0].absolute, scores[0].reward, scores[1].absolute, scores[1].reward, scores[2].absolute]
    assert bold == pytest.approx([*figures, scores[2].reward, scores[3].reward])
    advantages = ", ".join(f"{advantage or 0:.3f}".replace("-", "−") for advantage in statistics.compute_advantages())
    assert f"mean {statistics.mean:.3f}, standard deviation {statistics.std:.3f} (n − 1)" in PAGE
    assert f"advantages {advantages}." in PAGE


def test_each_step_of_the_table_is_computed() -> None:
    _, scores = judge_example()
    shown = PAGE.split("<!-- steps: read by the tests -->\n")[1].split("\n\n")[0].splitlines()[2:]
    assert [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in shown] == list(build_rows(scores))


def test_the_shrinking_of_the_page_is_computed() -> None:
    _, scores = judge_example()
    ranks = compute_ranks()
    relative = scores[0].relative
    assert relative is not None
    kept = (relative - 0.5) / (space_as_normal(ranks)[0] - 0.5)
    spread = variance(ranks)
    noise = spread / kept - spread
    assert f"{spread:.4f} / ({spread:.4f} + {noise:.5f}) = {kept:.3f}" in PAGE


def test_the_drawing_shows_the_same_figures() -> None:
    _, scores = judge_example()
    rows = {letter: [cell for cell in cells if "." in cell] for letter, *cells in build_rows(scores)}
    drawn = {
        letter: re.findall(r">(\d\.\d+)<", DRAWING.split(f'<g id="{letter}">')[1].split("</g>")[0]) for letter in rows
    }
    assert drawn == {letter: [cells[0], *cells[3:]] if len(cells) > 1 else cells for letter, cells in rows.items()}
