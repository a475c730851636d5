"""Terminal report of a preview: prompt, replies, gates, judgements and scores."""

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.consoles import format_figure
from app.domain.judging import Judgement
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.service.previews import PreviewResult
from app.toolkit.display import escape_invisible

_SHORT = 70


class SheetTrial(PreviewResult):
    """A preview with the replies that were judged."""

    replies: tuple[Completion, ...]
    """In the order of `completions`."""


def print_trial(console: Console, trial: SheetTrial, *, whole_prompt: bool) -> None:
    """Prints without markup, and escapes control characters, since replies are untrusted."""
    _print_prompt(console, trial, whole_prompt)
    names = _number_candidates(trial)
    for number, reply in enumerate(trial.replies, start=1):
        _print_reply(console, number, reply)
    if trial.completions:
        console.print(_build_scores_table(trial))
    for number, tried in enumerate(trial.completions, start=1):
        for gate in tried.gates:
            _print_text(console, f"{number} {gate.flag}: {gate.notices or tried.score.rationale}", style="red")
        if not tried.gates and tried.score.rationale:
            _print_text(console, f"{number} {tried.score.rationale}", style="dim")
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
        _print_text(console, text)
    else:
        console.print(Text(f"system prompt of {len(text.split())} words; --prompt shows it", style="dim"))
    for passage in trial.passages:
        _print_text(console, f"retrieved: {passage.text}", style="dim")
    for message in said:
        _print_said(console, message.role, message.content or "")


def _print_reply(console: Console, number: int, reply: Completion) -> None:
    """Prints every message of an episode. What the model said is marked with the number of the reply."""
    for role, text in _list_lines(reply):
        _print_said(console, f"{number} {role}", text)
    if reply.truncated:
        _print_text(console, f"{number} was cut off at the token limit", style="dim")


def _list_lines(reply: Completion) -> Iterator[tuple[str, str]]:
    if reply.messages is None:
        yield "assistant", reply.text or ""
    for message in reply.messages or ():
        called = [f"{call.function.name}({call.function.arguments})" for call in message.tool_calls or ()]
        yield message.role, "\n".join([*filter(None, [message.content]), *called])


def _print_said(console: Console, head: str, text: str) -> None:
    """Indents all lines but the first, so that none of them looks like a line of the report."""
    indented = escape_invisible(text).replace("\n", "\n    ")
    console.print(Text.assemble((f"{head}: ", "bold"), indented))


def _print_text(console: Console, text: str, style: str = "") -> None:
    console.print(Text(escape_invisible(text), style=style))


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
    return "\n".join(f"{name} {format_figure(value, '.2f')}" for name, value in figures.items())


def _format_reward(score: Score) -> str:
    return f"none: {score.reason}" if score.reward is None else f"{score.reward:.3f}"


def _print_judgement(console: Console, judgement: Judgement, names: Mapping[str, str]) -> None:
    order = " ".join(names.get(name, name) for name in judgement.order)
    ranking = " > ".join(" = ".join(names.get(name, name) for name in tier) for tier in judgement.ranking)
    outcome = f"failed: {judgement.error}" if judgement.error is not None else f"ranks {ranking}"
    head = f"{judgement.judge} ({judgement.model}) reads {order}, {outcome}, in {judgement.latency_seconds:.2f} s"
    _print_text(console, head, style="bold")
    for verdict in judgement.verdicts:
        scores = ", ".join(f"{name} {format_figure(value, '.2f')}" for name, value in verdict.scores.items())
        faults = " ".join(defect.code for defect in verdict.defects)
        said = verdict.evidence or [defect.quote for defect in verdict.defects if defect.quote]
        quotes = " | ".join(" ".join(quote.split())[:_SHORT] for quote in said)
        words = "; ".join(filter(None, (scores, faults, verdict.note, quotes)))
        _print_text(console, f"  {names.get(verdict.candidate, verdict.candidate)}: {words}")
