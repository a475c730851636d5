"""Which replies of known level NPC Arena names for a task, and which may be made."""

from pathlib import Path

import pytest

from app.characters.loading import read_scenes, read_sheets
from app.characters.schema import CharacterSheet
from app.domain.scores import LEVELS, ReferencePlan
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena, NpcArenaParams
from app.envs.npc_arena.roster import Turns

ROOT = Path(__file__).resolve().parents[3]
HOB = next(sheet for sheet in read_sheets(ROOT / "character_sheets") if sheet.id == "hob_tarrant")


def plans(sheet: CharacterSheet, turns: Turns = "single") -> dict[str, ReferencePlan | None]:
    """By scene."""
    arena, params = NpcArena([sheet], read_scenes(PACKAGED_SCENES)), NpcArenaParams(turns=turns)
    tasks = [arena.task("train", index, params) for index in range(arena.size("train", params))]
    return {str(task.metadata["scene"]): arena.references(task) for task in tasks}


def test_what_people_wrote_is_given_and_the_rest_may_be_made() -> None:
    found = plans(HOB)
    written, open_ = found["hob_tarrant-marsh"], found["hob_tarrant-court"]
    assert written is not None
    assert open_ is not None
    assert (sorted(written.given), sorted(open_.given)) == (sorted(LEVELS), [])
    assert [words in open_.brief for words in ("silk trade", "Hob", "does not care to guess")] == [True] * 3
    made = [plan.scene for plan in found.values() if plan is not None]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(("changed", "opted_out"), [({"probes": {"calibration": "off"}}, True), ({"voice": {}}, False)])
def test_a_sheet_that_forbids_it_or_shows_no_voice_gets_no_invented_replies(
    changed: dict[str, object], opted_out: bool
) -> None:
    sheet = CharacterSheet.model_validate(HOB.model_dump(mode="json") | changed)
    plan = plans(sheet)["hob_tarrant-court"]
    assert plan is not None
    assert (plan.brief, plan.opted_out) == ("", opted_out)


def test_sheets_of_before_keep_their_digest() -> None:
    dumped = HOB.model_dump(mode="json")
    assert "calibration" not in dumped["probes"]
    assert CharacterSheet.model_validate(dumped | {"probes": {"calibration": False}}).digest != HOB.digest


def test_scenes_of_several_replies_have_none() -> None:
    assert set(plans(HOB, "multi").values()) == {None}
