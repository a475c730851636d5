"""How often the judge without a model knows the good reply: on what ships, and on what was set aside."""

import asyncio
from functools import cache
from pathlib import Path

from app.cli.judges import build_questions, load_packaged_specimens, load_specimens
from app.judges.gold_cases import GoldCase, Templates, load_packaged_templates, read_templates
from app.judges.meta_evaluation import CheckReport, Figure, MutationFigure, build_report, measure_judge
from app.judges.offline import OfflineJudge
from docs.markdown import code, table

SET_ASIDE = Path(__file__).resolve().parents[2] / "tests" / "data" / "set_aside"


@cache
def on_what_ships() -> CheckReport:
    return _checked(load_packaged_specimens(), load_packaged_templates())


@cache
def on_what_was_set_aside() -> CheckReport:
    found = load_specimens(SET_ASIDE / "sheets", SET_ASIDE / "scenes")
    return _checked(found, read_templates(SET_ASIDE / "templates.yaml"))


def offline_figures() -> str:
    heads = ("kind", "grade", "decidable without a model", "ships: of", "judge alone", "behind gates")
    apart = {figure.mutation: figure for figure in on_what_was_set_aside().mutations}
    rows = [
        (
            code(figure.mutation),
            figure.grade,
            "yes" if figure.decidable else "no",
            *_cells(figure),
            *_cells(apart.get(figure.mutation)),
        )
        for figure in on_what_ships().mutations
    ]
    return table((*heads, "set aside: of", "judge alone", "behind gates"), rows)


def _checked(found: tuple[GoldCase, ...], templates: Templates) -> CheckReport:
    judge = OfflineJudge()
    return build_report(judge.name, judge.model, asyncio.run(measure_judge(judge, build_questions(found, templates))))


def _cells(figure: MutationFigure | None) -> tuple[str, str, str]:
    if figure is None:
        return ("0", "", "")
    return (str(figure.judge.trials), _share(figure.judge), _share(figure.behind_gates))


def _share(figure: Figure) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return "not measured"
    return f"{figure.value:.3f} ({figure.low:.2f} to {figure.high:.2f})"
