"""`atropos-envs process` as tests call it, and what it wrote."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, JsonValue
from typer.testing import CliRunner

from app.cli.main import cli
from app.inference.policies import TurnTokens
from tests.support.policy_server import MODEL


class Line(BaseModel):
    """A group as it was written."""

    task_id: str
    group_id: str
    environment: str
    turns: list[list[TurnTokens]] | None = None
    tokens: list[list[int]] = []
    masks: list[list[int]] = []
    scores: list[float]
    inference_logprobs: list[list[float]]
    messages: list[list[dict[str, JsonValue]]]


@dataclass(frozen=True)
class Processed:
    exit_code: int
    told: str
    lines: list[Line]

    @property
    def tasks(self) -> Counter[str]:
        return Counter(line.task_id for line in self.lines)


def arguments(url: str, policy: str, out: Path, *more: str) -> list[str]:
    return ["process", "--url", url, "--policy", policy, "--model", MODEL, "--out", str(out), *more]


def process(url: str, policy: str, out: Path, *more: str) -> Processed:
    """In this process; `more` comes last, so that it decides."""
    given = arguments(url, policy, out, "--split", "test", "--group-size", "2", *more)
    result = CliRunner().invoke(cli, given, env={"COLUMNS": "300"})
    told = result.output if result.exception is None or result.exit_code else f"{result.output}{result.exception!r}"
    return Processed(result.exit_code, told, lines_of(out))


def lines_of(out: Path) -> list[Line]:
    return [Line.model_validate(json.loads(line)) for line in out.read_bytes().splitlines()] if out.exists() else []


def trained(line: Line, place: int) -> Sequence[int]:
    """The tokens of one completion that are trained on."""
    return [mask for mask in line.masks[place] if mask != -100]
