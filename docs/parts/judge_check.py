"""What a check of the judge without a model finds, from the check itself."""

import asyncio
from functools import cache

from app.cli.judges import build_packaged_questions
from app.judges.meta_evaluation import CheckReport, Figure, build_report, measure_judge
from app.judges.offline import OfflineJudge
from docs.markdown import code, table

SHEETS = 8
"""As `judges check` has it by default."""
SEED = 0


def check_figures() -> str:
    heads = ("figure", "value", "95 % interval", "of", "target", "")
    rows = [
        (one.name, _value(one), _interval(one), str(one.trials), one.target, "passed" if one.passed else "**missed**")
        for one in _checked().figures
    ]
    return table(heads, rows)


def check_mutations() -> str:
    heads = ("kind", "what is done", "grade", "judge alone", "95 % interval", "behind gates", "of")
    rows = [
        (
            code(one.mutation),
            one.does,
            one.grade,
            _value(one.judge),
            _interval(one.judge),
            _value(one.behind_gates),
            str(one.judge.trials),
        )
        for one in _checked().mutations
    ]
    return table(heads, rows)


@cache
def _checked() -> CheckReport:
    judge = OfflineJudge()
    questions = build_packaged_questions(SHEETS, votes=1, seed=SEED)
    return build_report(judge.name, judge.model, asyncio.run(measure_judge(judge, questions)))


def _value(figure: Figure) -> str:
    return "not measured" if figure.value is None else f"{figure.value:.3f}"


def _interval(figure: Figure) -> str:
    return "" if figure.low is None or figure.high is None else f"{figure.low:.2f} to {figure.high:.2f}"
