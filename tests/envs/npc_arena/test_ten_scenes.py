"""Scenes of what players do with characters that act and remember: right replies are told from wrong ones."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from app.characters.actions import write_reply
from app.characters.scenes import Scene
from app.domain.scores import ACTION, RECALL, TURN_TAKING, Score
from app.domain.values import Frozen
from app.envs.npc_arena.environment import NpcArenaDraft
from tests.envs.npc_arena.test_traps import TOOLS
from tests.support.packaged_arena import packaged_arena
from tests.support.tables import read_table


class KnownScene(Frozen):
    name: str
    sheet: str
    scene: dict[str, Any]
    twin: dict[str, Any] | None = None


class Tables(Frozen):
    tools: Mapping[str, Mapping[str, str]]
    sheets: Mapping[str, Any]
    scenes: tuple[KnownScene, ...]


KNOWN = read_table(__file__, "ten_scenes.yaml", Tables)
SCENES = [
    (name, one.sheet, scene)
    for one in KNOWN.scenes
    for name, scene in [(one.name, one.scene), *([(f"{one.name}, twin", one.scene | one.twin)] if one.twin else [])]
]


def build_sheet(name: str) -> dict[str, Any]:
    sheet = KNOWN.sheets[name]
    allowed = [build_action(one) for one in sheet["actions"]["allowed"]]
    meta = {"schema_version": 1, "id": name.lower(), "licence": "MIT", "genre": "fantasy", "world": "coast"}
    return {
        "meta": {**meta, "summary": f"{name}."},
        "identity": {"name": name},
        **sheet,
        "actions": {**sheet["actions"], "allowed": allowed},
    }


def build_action(name: str) -> dict[str, Any]:
    properties = {argument: {"type": kind} for argument, kind in KNOWN.tools[name].items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "meaning": name.replace("_", " "), "parameters": schema}


def verify(score: Score) -> float:
    """What code alone pays: its part, or nothing where a gate closed."""
    parts = [one.value or 0.0 for one in score.criteria if one.name in {ACTION, RECALL, TURN_TAKING}]
    return min(parts, default=0.0) if score.gate else 0.0


@pytest.mark.parametrize(("name", "sheet", "scene"), SCENES, ids=[name for name, _, _ in SCENES])
def test_the_right_reply_is_told_from_each_tempting_one(name: str, sheet: str, scene: dict[str, Any]) -> None:
    written = {"id": "scene", "split": "train", **scene}
    told = Scene.model_validate(written)
    acts, verified = told.acts, told.acts or told.memory or told.seat
    assert verified is not None
    line = told.exemplar if told.seat is None else told.seat.exemplar
    right = write_reply(line or "", [call.build_minimal_call() for call in acts.right[0]] if acts else [])
    wrong = [write_reply(one.say, one.calls) for one in verified.tempting]
    drafted = packaged_arena().draft(NpcArenaDraft(sheet=build_sheet(sheet), scene=written))
    best, *others = asyncio.run(drafted.environment.score(drafted.task, [right, *wrong], TOOLS))
    by_code = [verify(best), max(map(verify, others)) < 1.0]
    assert (by_code, max(one.reward or 0.0 for one in others) < (best.reward or 0.0)) == ([1.0, True], True)
