"""Under which options and panel something is scored, and whether a run still agrees with that."""

from app.domain.errors import Conflict
from app.domain.runs import Pin, Run, ScoringOptions
from app.ports.judges import Panel, Panels
from app.service.catalogue import Hosted


def panel_for(panels: Panels, hosted: Hosted, options: ScoringOptions) -> Panel | None:
    """The judges of a judged environment; None where a verifier decides."""
    return None if hosted.environment.rubric is None else panels.panel(hosted.name, options)


def require_same_scoring(run: Run, same: bool, pin: Pin) -> None:
    """Conflict when a strict run would be scored otherwise than it was pinned to."""
    if run.strict and not same:
        raise Conflict(
            f"run {run.name!r} is strict, and the scoring of {pin.environment} has changed since the run began",
            field="run",
        )
