"""`atropos-envs envs list`: all environments of this installation."""

from importlib.metadata import entry_points
from typing import Literal

from rich.table import Table
from rich.text import Text

from app.cli.envs.found import all_environments
from app.domain.values import Frozen
from app.ports.environment import Datasets, Environment
from app.service.catalogue import Catalogue

Turns = Literal["one", "several"]


class Line(Frozen):
    name: str
    version: str
    turns: Turns
    scored_by: str
    """`verifier`, `verifier, running programs`, or `judges` with the rubric's name."""
    source: str
    """`core`, `community`, or the package that provides it."""
    available: bool
    reason: str | None
    """Why it is not available."""


def lines(datasets: Datasets) -> tuple[Line, ...]:
    """Blocking: opens every environment. ValueError when the code of one fails."""
    classes = all_environments()
    catalogue = Catalogue(classes)
    catalogue.open(datasets)
    brought = _brought()
    return tuple(_line(kind, catalogue.reason(name), brought) for name, kind in sorted(classes.items()))


def table_of(listed: tuple[Line, ...]) -> Table:
    table = Table("environment", "version", "turns", "scored by", "from", "available")
    for line in listed:
        reason = Text(line.reason or "no", style="red") if not line.available else Text("yes")
        table.add_row(line.name, line.version, line.turns, line.scored_by, line.source, reason)
    return table


def _line(kind: type[Environment], reason: str | None, brought: dict[str, str]) -> Line:
    return Line(
        name=kind.name,
        version=kind.version,
        turns="several" if kind.multi_turn else "one",
        scored_by=_scored_by(kind),
        source=_source(kind, brought),
        available=reason is None,
        reason=reason,
    )


def _scored_by(kind: type[Environment]) -> str:
    if kind.rubric is not None:
        return f"judges ({kind.rubric.name})"
    return "verifier, running programs" if kind.runs_programs else "verifier"


def _source(kind: type[Environment], brought: dict[str, str]) -> str:
    if kind.__module__.startswith("app.envs."):
        return "community" if kind.__module__.startswith("app.envs.community.") else "core"
    return brought.get(f"{kind.__module__}:{kind.__qualname__}", kind.__module__)


def _brought() -> dict[str, str]:
    """Package name by entry point value."""
    points = entry_points(group="atropos_environments.envs")
    return {point.value: point.dist.name for point in points if point.dist is not None}
