"""Terminal report of a preview: prompt, gates, judgements and scores."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.domain.judging import Judgement
from app.domain.scores import Score
from app.service.previews import PreviewResult

_SHORT = 70


def print_trial(console: Console, trial: PreviewResult, *, whole_prompt: bool) -> None:
    """Prints without markup, since replies are untrusted."""
    _print_prompt(console, trial, whole_prompt)
    names = _number_candidates(trial)
    if trial.completions:
        console.print(_build_scores_table(trial))
    for number, tried in enumerate(trial.completions, start=1):
        for gate in tried.gates:
            console.print(Text(f"{number} {gate.flag}: {gate.notices or tried.score.rationale}", style="red"))
        if not tried.gates and tried.score.rationale:
            console.print(Text(f"{number} {tried.score.rationale}", style="dim"))
    for judgement in trial.judgements:
        _print_judgement(console, judgement, names)
    if trial.completions:
        cost = "unknown price" if trial.cost_usd is None else f"{trial.cost_usd:.4f} USD"
        words = f"{trial.seconds:.2f} s, {trial.calls} calls to judge models, {cost}; nothing was stored"
        console.print(Text(words, style="bold"))


def _print_prompt(console: Console, trial: PreviewResult, whole: bool) -> None:
    system, *said = trial.messages
    text = system.content or ""
    if whole:
        console.print(Text(text))
    else:
        console.print(Text(f"system prompt of {len(text.split())} words; --prompt shows it", style="dim"))
    for passage in trial.passages:
        console.print(Text(f"retrieved: {passage.text}", style="dim"))
    for message in said:
        console.print(Text.assemble((f"{message.role}: ", "bold"), message.content or ""))


def _number_candidates(trial: PreviewResult) -> dict[str, str]:
    """Completion numbers by candidate id; equal completions share one."""
    names: dict[str, str] = {}
    for number, tried in enumerate(trial.completions, start=1):
        if tried.score.candidate:
            earlier = names.get(tried.score.candidate)
            names[tried.score.candidate] = str(number) if earlier is None else f"{earlier}={number}"
    return names


def _build_scores_table(trial: PreviewResult) -> Table:
    """Fits 80 columns without splitting names."""
    table = Table("#", "reward", "parts", title="Scores", show_lines=True, show_edge=False)
    table.add_column("criteria", no_wrap=True)
    table.add_column("flags", overflow="fold")
    for number, tried in enumerate(trial.completions, start=1):
        score = tried.score
        parts = {"gate": score.gate, "absolute": score.absolute, "relative": score.relative}
        criteria = {criterion.name: criterion.value for criterion in score.criteria}
        cells = (
            str(number),
            _format_reward(score),
            _format_lines(parts),
            _format_lines(criteria),
            "\n".join(score.flags),
        )
        table.add_row(*map(Text, cells))
    return table


def _format_lines(figures: Mapping[str, float | None]) -> str:
    return "\n".join(f"{name} {_format_figure(value)}" for name, value in figures.items())


def _format_reward(score: Score) -> str:
    return f"none: {score.reason}" if score.reward is None else f"{score.reward:.3f}"


def _format_figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _print_judgement(console: Console, judgement: Judgement, names: Mapping[str, str]) -> None:
    order = " ".join(names.get(name, name) for name in judgement.order)
    ranking = " > ".join(" = ".join(names.get(name, name) for name in tier) for tier in judgement.ranking)
    outcome = f"failed: {judgement.error}" if judgement.error is not None else f"ranks {ranking}"
    head = f"{judgement.judge} ({judgement.model}) reads {order}, {outcome}, in {judgement.latency_seconds:.2f} s"
    console.print(Text(head, style="bold"))
    for verdict in judgement.verdicts:
        scores = ", ".join(f"{name} {_format_figure(value)}" for name, value in verdict.scores.items())
        faults = " ".join(defect.code for defect in verdict.defects)
        quotes = " | ".join(" ".join(quote.split())[:_SHORT] for quote in verdict.evidence)
        words = "; ".join(filter(None, (scores, faults, verdict.note, quotes)))
        console.print(Text(f"  {names.get(verdict.candidate, verdict.candidate)}: {words}"))
