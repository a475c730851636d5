"""`atropos-envs rubrics`: a rubric is written, changed, checked and shown."""

import json
from pathlib import Path

from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.judging import OwnRubric
from app.domain.values import digest_of_model
from app.envs.npc_arena.environment import DEFAULT_RUBRIC, STARTING_RUBRIC
from app.judges.prompts import load_rubric

RUNNER = CliRunner()


def rubrics(*words: str) -> tuple[int, str]:
    ran = RUNNER.invoke(cli, ["rubrics", *words])
    return ran.exit_code, ran.output


def test_the_default_is_written_out_and_never_over_a_file() -> None:
    codes = [
        rubrics("write", "mine.yaml")[0],
        rubrics("write", "mine.yaml")[0],
        rubrics("write", "mine.yaml", "--force")[0],
    ]
    written = digest_of_model(load_rubric(Path("mine.yaml")).build_rubric())
    assert (codes, written) == ([0, 1, 0], digest_of_model(STARTING_RUBRIC))
    assert (rubrics("write")[1], rubrics("check", "mine.yaml")) == (
        Path("mine.yaml").read_text(encoding="utf-8"),
        (0, "1 rubric read, 0 errors, 0 warnings\n"),
    )


def test_errors_and_warnings_are_listed_by_line() -> None:
    text = DEFAULT_RUBRIC.read_text(encoding="utf-8")
    Path("loose.yaml").write_text(text.replace("weight: 0.35", "weight: 0.45"), encoding="utf-8")
    Path("wrong.yaml").write_text(text.replace("cap: 0.5", "cap: half", 1), encoding="utf-8")
    loose = "loose.yaml\n  warning, line 13: criteria: the weights add up to 1.1, not 1: only their proportions count\n"
    counts = "1 rubric read, 0 errors, 1 warning\n"
    found = json.loads(rubrics("check", "--json", "loose.yaml", "wrong.yaml")[1])
    assert (rubrics("check", "loose.yaml"), rubrics("check", "--strict", "loose.yaml")[0]) == ((0, loose + counts), 1)
    assert (rubrics("check", "wrong.yaml")[0], found["rubrics"], found["errors"], found["warnings"]) == (1, 1, 1, 1)
    assert [(one["file"], one["field"]) for one in found["findings"]] == [
        ("loose.yaml", "criteria"),
        ("wrong.yaml", "defects.6.cap"),
    ]


def test_a_rubric_is_shown_with_shares_and_as_a_run_takes_it() -> None:
    shown = rubrics("show")[1]
    said = OwnRubric.model_validate_json(rubrics("show", "--json")[1])
    assert (
        digest_of_model(said.build_rubric()),
        [words in shown for words in ("engagingness", "0.16", "knows_withheld", "memory", "denies_ai")],
    ) == (digest_of_model(STARTING_RUBRIC), [True] * 5)
