"""Chooses the panel of an environment, and checks that a strict run's scoring is unchanged."""

from app.domain.errors import Conflict
from app.domain.runs import Pin, Run, ScoringOptions
from app.ports.judges import Panel, Panels
from app.service.catalogue import Hosted


def panel_for(panels: Panels, hosted: Hosted, options: ScoringOptions) -> Panel | None:
    """The panel of a judged environment; None if a verifier scores it."""
    return None if hosted.environment.rubric is None else panels.panel(hosted.name, options)


def require_same_scoring(run: Run, same: bool, pin: Pin) -> None:
    """Conflict when the scoring of a strict run has changed since its pin."""
    if run.strict and not same:
        raise Conflict(
            f"run {run.name!r} is strict, and the scoring of {pin.environment} has changed since the run began",
            field="run",
        )
