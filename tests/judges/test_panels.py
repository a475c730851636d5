"""Which judges score which environment."""

from contextlib import nullcontext

import pytest

from app.domain.errors import InvalidRequest
from app.domain.judging import Mode
from app.domain.runs import PanelOptions, ScoringOptions
from app.judges.chat_judge import ScriptedJudge, score_equally
from app.judges.configuration import ChatJudgeConfig
from app.judges.panel import DEFAULTS, ConfiguredPanels, build_chat_judges
from app.ports.judges import Judge
from app.settings import EnvironmentSettings
from tests.support.tables import read_table

PANELS = ConfiguredPanels(
    {"big": ScriptedJudge(score_equally, "big"), "small": ScriptedJudge(score_equally, "small")},
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
    panel = PANELS.build_panel(environment, options)
    assert panel.judges == judges
    assert len(panel.models) == len(judges)


@pytest.mark.parametrize(
    ("environment", "said", "expected"),
    read_table(__file__, "filled_in.yaml", list[tuple[str, dict[str, object], dict[str, object]]]),
)
def test_the_settings_fill_in_what_a_run_leaves_open(
    environment: str, said: dict[str, object], expected: dict[str, object]
) -> None:
    wanted = DEFAULTS.model_dump() | {"calibration_share": 0.025, **expected}
    found = PANELS.resolve_options(environment, ScoringOptions.model_validate(said))
    assert found == PanelOptions.model_validate(wanted)


def test_an_environments_settings_are_scoring_options() -> None:
    given = {"judges": ("big",), "mode": "pairwise", "votes": 3, "readings": 2, "relative_weight": 0.0}
    assert EnvironmentSettings.model_validate(given).options == ScoringOptions.model_validate(given)
    assert EnvironmentSettings().options == ScoringOptions()
    said = EnvironmentSettings.model_validate({"votes": "3", "readings": "2"})
    assert said.options == ScoringOptions(votes=3, readings=2), "as variables of the process say it"


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [("votes", (0, 10, -1, 1.0, True), "votes"), ("readings", (0, 3, 8, -1, 2.0, True, "2"), "1, 2 or 4")],
)
def test_votes_are_few_and_whole_and_readings_one_two_or_four(name: str, wrong: tuple[object, ...], words: str) -> None:
    for value in wrong:
        with pytest.raises(ValueError, match=words):
            ScoringOptions.model_validate({name: value})


def test_an_unknown_judge_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidRequest, match="no judge 'huge'; there are big, offline, small") as caught:
        PANELS.build_panel("npc_arena", ScoringOptions(judges=("huge",)))
    assert caught.value.field == "options.judges"


def test_self_judging_is_allowed_by_name() -> None:
    assert [PANELS.refuses_self_judging(name) for name in ("big", "small", "offline")] == [True, False, True]


def test_options_are_part_of_the_digest() -> None:
    one = PANELS.build_panel("npc_arena", ScoringOptions())
    others = [
        PANELS.build_panel("npc_arena", ScoringOptions.model_validate(said))
        for said in (
            {"relative_weight": 0.0},
            {"mode": "listwise"},
            {"mode": "pointwise"},
            {"votes": 3},
            {"readings": 1},
        )
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 6
    assert PANELS.build_panel("npc_arena", ScoringOptions(mode="pairwise", votes=1)).digest == one.digest


def test_settings_that_name_nobody_fail_at_start() -> None:
    with pytest.raises(ValueError, match="rlaif: there is no judge 'huge'"):
        ConfiguredPanels({}, {"rlaif": ScoringOptions(judges=("huge",))})
    with pytest.raises(ValueError, match="'offline' is the name"):
        ConfiguredPanels({"offline": ScriptedJudge(score_equally)}, {})


def chatting(temperature: float | None, name: str = "chat") -> dict[str, Judge]:
    config = ChatJudgeConfig(name=name, base_url="http://127.0.0.1:1/v1", model="m", temperature=temperature)
    return build_chat_judges([config], {}, None)


@pytest.mark.parametrize(
    ("temperature", "mode", "votes", "refused"),
    read_table(__file__, "equal_votes.yaml", list[tuple[float | None, Mode, int, bool]]),
)
def test_votes_that_would_all_be_the_same_are_refused(
    temperature: float | None, mode: Mode, votes: int, refused: bool
) -> None:
    chosen = ScoringOptions(mode=mode, votes=votes, judges=("chat",))
    words = f"{votes} votes of judge 'chat' would be the same answer"
    with pytest.raises(InvalidRequest, match=words) if refused else nullcontext() as raised:
        ConfiguredPanels(chatting(temperature), {}).build_panel("rlaif", chosen)
    assert raised is None or raised.value.field == "options.votes"
    with pytest.raises(ValueError, match=f"rlaif: {words}") if refused else nullcontext():
        ConfiguredPanels(chatting(temperature), {"rlaif": chosen})
