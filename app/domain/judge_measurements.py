"""What is known of a judge: figures that a command measured, as they are stored and shown beside one another."""

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from app.domain.values import FiniteNumber, Frozen

MeasurementKind = Literal["check", "bench"]
"""`check`: spoilt replies, whose order is known. `bench`: replies that people have rated."""


class MeasuredFigure(Frozen):
    name: str
    mode: str = ""
    """Empty for a figure that has none."""
    value: FiniteNumber | None = None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    """The 95 % interval, where there is one."""
    trials: int = 0
    beside: str = ""
    """What to hold it against, in words: a target, or what a judge without understanding gets."""


class JudgeMeasurement(Frozen):
    """One for each judge and command: measuring again replaces it."""

    kind: MeasurementKind
    judge: str
    model: str
    judge_digest: str
    """Of everything that could change a verdict."""
    command: str
    """The command that measures it again."""
    form: str = ""
    """Form of the labelled rows."""
    rubric: str = ""
    """Name and version, of a check."""
    rubric_digest: str = ""
    passed: bool | None = None
    """Null without targets."""
    verdict: str = ""
    """What that means, in words."""
    measured_at: datetime
    figures: tuple[MeasuredFigure, ...]


def build_judge_command(verb: MeasurementKind | Literal["agreement"], judge: str, options: Mapping[str, object]) -> str:
    """The command that measures a judge. An option that is None or False is left out, and True has no value."""
    named = [f"--judge {shlex.quote(judge)}"] if verb == "bench" else [shlex.quote(judge)]
    for name, value in options.items():
        if value is not None and value is not False:
            named.append(f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}")
    return " ".join(["atropos-envs judges", verb, *named])
