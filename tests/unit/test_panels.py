"""Which judges score which environment."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.domain.runs import ScoringOptions
from app.errors import InvalidRequest
from app.judges.panels import ConfiguredPanels
from app.judges.scripted import ScriptedJudge, indifferent

PANELS = ConfiguredPanels(
    {"big": ScriptedJudge(indifferent, "big"), "small": ScriptedJudge(indifferent, "small")},
    {"npc_arena": ScoringOptions(judges=("big", "small"), mode="pairwise", relative_weight=0.25)},
    self_judging=("small",),
)


@pytest.mark.parametrize(
    ("environment", "options", "judges"),
    [
        ("npc_arena", ScoringOptions(), ("big", "small")),
        ("rlaif", ScoringOptions(), ("offline",)),
        ("npc_arena", ScoringOptions(judges=("offline", "small", "offline")), ("offline", "small")),
    ],
)
def test_chooses(environment: str, options: ScoringOptions, judges: tuple[str, ...]) -> None:
    panel = PANELS.panel(environment, options)
    assert panel.judges == judges
    assert len(panel.models) == len(judges)


def test_an_unknown_judge_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidRequest, match="no judge 'huge'; there are big, offline, small") as caught:
        PANELS.panel("npc_arena", ScoringOptions(judges=("huge",)))
    assert caught.value.field == "options.judges"


def test_self_judging_is_allowed_by_name() -> None:
    assert [PANELS.refuses_self_judging(name) for name in ("big", "small", "offline")] == [True, False, True]


def test_options_are_part_of_the_digest() -> None:
    one = PANELS.panel("npc_arena", ScoringOptions())
    other = PANELS.panel("npc_arena", ScoringOptions(relative_weight=0.0))
    assert one.digest != other.digest


def test_settings_that_name_nobody_fail_at_start() -> None:
    with pytest.raises(ValueError, match="rlaif: there is no judge 'huge'"):
        ConfiguredPanels({}, {"rlaif": ScoringOptions(judges=("huge",))})
    with pytest.raises(ValueError, match="'offline' is the name"):
        ConfiguredPanels({"offline": ScriptedJudge(indifferent)}, {})


def test_without_a_configured_judge_the_client_library_is_not_loaded() -> None:
    """It takes a second to import."""
    program = (
        "import sys, pkgutil, importlib, app.judges as judges\n"
        "names = {module.name for module in pkgutil.walk_packages(judges.__path__, 'app.judges.')}\n"
        "[importlib.import_module(name) for name in names - {'app.judges.chat'}]\n"
        "assert 'app.judges.panels' in names and 'openai' not in sys.modules, names"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
