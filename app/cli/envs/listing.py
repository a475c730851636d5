"""`atropos-envs envs list`: all environments of this installation."""

from importlib.metadata import entry_points
from typing import Literal

from rich.table import Table
from rich.text import Text

from app.cli.envs.lookup import discover_environments
from app.domain.values import Frozen
from app.ports.environment import Datasets, Environment
from app.service.catalogue import Catalogue

Turns = Literal["one", "several"]


class EnvironmentLine(Frozen):
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


def list_lines(datasets: Datasets) -> tuple[EnvironmentLine, ...]:
    """Blocking: opens every environment. ValueError when the code of one fails."""
    classes = discover_environments()
    catalogue = Catalogue(classes)
    catalogue.open(datasets)
    brought = _map_entry_points()
    return tuple(
        _build_line(kind, catalogue.explain_unavailability(name), brought) for name, kind in sorted(classes.items())
    )


def build_table(listed: tuple[EnvironmentLine, ...]) -> Table:
    table = Table("environment", "version", "turns", "scored by", "from", "available")
    for line in listed:
        reason = Text(line.reason or "no", style="red") if not line.available else Text("yes")
        table.add_row(line.name, line.version, line.turns, line.scored_by, line.source, reason)
    return table


def _build_line(kind: type[Environment], reason: str | None, brought: dict[str, str]) -> EnvironmentLine:
    return EnvironmentLine(
        name=kind.name,
        version=kind.version,
        turns="several" if kind.multi_turn else "one",
        scored_by=_describe_scoring(kind),
        source=_find_source(kind, brought),
        available=reason is None,
        reason=reason,
    )


def _describe_scoring(kind: type[Environment]) -> str:
    if kind.rubric is not None:
        return f"judges ({kind.rubric.name})"
    return "verifier, running programs" if kind.runs_programs else "verifier"


def _find_source(kind: type[Environment], brought: dict[str, str]) -> str:
    if kind.__module__.startswith("app.envs."):
        return "community" if kind.__module__.startswith("app.envs.community.") else "core"
    return brought.get(f"{kind.__module__}:{kind.__qualname__}", kind.__module__)


def _map_entry_points() -> dict[str, str]:
    """Package name by entry point value."""
    points = entry_points(group="atropos_environments.envs")
    return {point.value: point.dist.name for point in points if point.dist is not None}
