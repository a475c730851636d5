"""Reading and writing of evaluation folders."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from app.domain.values import Frozen
from app.evaluation.attempts import Attempt, Evaluation
from app.evaluation.pages import Document, render_html
from app.evaluation.report import EvaluationReport
from app.inference.token_sequences import TurnTokens

JOURNAL: Final = "evaluation.journal"
ATTEMPTS: Final = "attempts.jsonl"
TOKENS: Final = "tokens.jsonl"
REPORT: Final = "report"
COMPARISON: Final = "comparison"


class AttemptTokens(Frozen):
    """A line of `tokens.jsonl`. An attempt that was made again after a crash has two lines: the last one counts."""

    task_id: str
    place: int
    sample: int
    turns: tuple[TurnTokens, ...]


def append_tokens(out: Path, tokens: AttemptTokens) -> None:
    with (out / TOKENS).open("a", encoding="utf-8", newline="\n") as file:
        file.write(tokens.model_dump_json() + "\n")


def write_evaluation(out: Path, evaluation: Evaluation, report: EvaluationReport) -> None:
    """Writes each file atomically."""
    lines = (attempt.model_dump_json() + "\n" for attempt in evaluation.attempts)
    _write_file(out / ATTEMPTS, lines)
    write_document(out / f"{REPORT}.html", out / f"{REPORT}.json", report)


def write_document(html: Path | None, json: Path | None, document: Document) -> None:
    if json is not None:
        _write_file(json, (document.model_dump_json(indent=1), "\n"))
    if html is not None:
        _write_file(html, (render_html(document),))


def read_evaluation(place: Path) -> Evaluation:
    """Reads the folder, or the folder of a file. ValueError when it holds no evaluation."""
    folder = place.parent if place.is_file() else place
    try:
        report = EvaluationReport.model_validate_json((folder / f"{REPORT}.json").read_bytes())
        with (folder / ATTEMPTS).open("rb") as file:
            attempts = tuple(Attempt.model_validate_json(line) for line in file)
    except FileNotFoundError as error:
        raise ValueError(
            f"{folder} is not an evaluation folder: {Path(str(error.filename)).name} is missing"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{folder} holds an evaluation of another version: {first['msg']}") from error
    return Evaluation(
        setup=report.setup, attempts=attempts, judging_usd=report.cost.judging_usd, finished_at=report.finished_at
    )


def find_finish_time(out: Path) -> datetime:
    """When the evaluation was first complete; a later start with nothing to do keeps this time."""
    try:
        kept = EvaluationReport.model_validate_json((out / f"{REPORT}.json").read_bytes()).finished_at
    except (FileNotFoundError, ValidationError):
        kept = None
    return kept or datetime.now(UTC)


def _write_file(path: Path, parts: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(parts)
    fresh.replace(path)
