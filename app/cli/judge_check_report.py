"""Prints and writes what `atropos-envs judges check` found."""

from pathlib import Path

import typer
from rich.table import Table

from app.cli.consoles import format_figure, output_console
from app.judges.check_report import CheckReport, Figure
from app.judges.form_comparison import FormComparison

console = output_console()


def write_report(file: Path, checked: CheckReport | FormComparison) -> None:
    text = checked.model_dump_json(indent=2)
    if str(file) == "-":
        typer.echo(text)
    else:
        file.write_text(f"{text}\n", encoding="utf-8")


def print_report(checked: CheckReport) -> None:
    console.print(_build_figures_table(checked), _build_mutations_table(checked), _build_criteria_table(checked))
    console.print(_build_letters_table(checked))
    for words in checked.failures:
        console.print(f"failed: {words}", style="red", highlight=False, markup=False)
    cost = "" if checked.cost_usd is None else f", {checked.cost_usd:.4f} US dollars"
    console.print(f"{checked.questions} questions, {checked.calls} calls{cost}", highlight=False)
    if checked.stopped is not None:
        return
    met = "no clear fault: run the whole check before training on this judge" if checked.short else "meets all targets"
    verdict = met if checked.passed else "below target: do not train on this judge"
    console.print(f"{checked.judge} ({checked.model}): {verdict}", style="green" if checked.passed else "red")


def _build_figures_table(checked: CheckReport) -> Table:
    table = Table("metric", "value", "95 % interval", "trials", "target", "", title=f"{checked.characters} characters")
    for figure in checked.figures:
        mark = {True: "passed", False: "[red]missed[/red]", None: ""}[figure.passed]
        table.add_row(
            figure.name, _format_value(figure), _format_interval(figure), str(figure.trials), figure.target, mark
        )
    return table


def _build_mutations_table(checked: CheckReport) -> Table:
    table = Table(title="clean reply preferred")
    for title in ("perturbation", "kind", "judge alone", "95 % interval", "after gates", "trials"):
        table.add_column(title, no_wrap=title == "perturbation")
    for each in checked.mutations:
        alone, behind = each.judge, each.behind_gates
        table.add_row(
            each.mutation,
            each.grade,
            _format_value(alone),
            _format_interval(alone),
            _format_value(behind),
            str(alone.trials),
        )
    return table


def _build_letters_table(checked: CheckReport) -> Table:
    table = Table(title="equal replies, by letter")
    for heading in ("letter", "comes first", "95 % interval", "score", "95 % interval", "trials"):
        table.add_column(heading)
    for each in checked.letters:
        first, score = each.first, each.score
        cells = (_format_value(first), _format_interval(first), _format_value(score), _format_interval(score))
        table.add_row(each.letter, *cells, str(first.trials))
    return table


def _build_criteria_table(checked: CheckReport) -> Table:
    rubric = checked.rubric
    title = f"values by criterion, rubric {rubric.name} {rubric.version} ({rubric.digest[:8]})"
    table = Table("criterion", "weight", "clean", "spoilt", "clean is higher", "95 % interval", "pairs", title=title)
    for each in checked.criteria:
        table.add_row(
            each.criterion,
            f"{each.weight:.2f}",
            format_figure(each.clean, ".2f"),
            format_figure(each.spoilt, ".2f"),
            _format_value(each.higher),
            _format_interval(each.higher),
            str(each.higher.trials),
        )
    return table


def _format_value(figure: Figure) -> str:
    return "not measured" if figure.value is None else f"{figure.value:.3f}"


def _format_interval(figure: Figure) -> str:
    return "" if figure.low is None or figure.high is None else f"{figure.low:.2f} to {figure.high:.2f}"


def print_comparison(compared: FormComparison) -> None:
    one, other = compared.forms
    table = Table(
        "metric", one, other, "difference", "95 % interval", "questions", title=f"{compared.judge}: {one}, {other}"
    )
    for each in compared.differences:
        cells = (f"{value:.4g}" if value is not None else "not measured" for value in (each.first, each.second))
        gap = "" if each.difference is None else f"{each.difference:+.4g}"
        table.add_row(each.name, *cells, gap, _format_range(each.low, each.high), str(each.trials))
    agreed = "not measured" if compared.agreement is None else f"{compared.agreement:.3f}"
    interval = _format_range(compared.agreement_low, compared.agreement_high)
    table.add_row("same reply preferred", "", "", agreed, interval, str(compared.agreement_trials))
    console.print(table)


def _format_range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4g} to {high:.4g}"
