"""Scenes with actions: which tasks they are, what judges see, what is refused, and what shipped scenes pay whom."""

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import pytest
import yaml

from app.characters.actions import find_untold, read_reply, verify_calls, write_reply
from app.characters.casting import Cast
from app.characters.loading import read_scenes
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.tasks import Completion, Message
from app.domain.values import Split
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena, NpcArenaDraft, NpcArenaParams
from app.ports.environment import Tools
from app.toolkit.templates import find_packaged_folder
from app.toolkit.tool_calls.calls import ParsedCall
from tests.envs.npc_arena.test_npc_arena import ScriptedPanel

SHEETS = find_packaged_folder("character_sheets")
SHIPPED = NpcArena.read(SHEETS)
CASTS = [cast for split in get_args(Split) for cast in SHIPPED.roster.list_casts(split, "single", "all", "only", None)]
QUAY = {
    "id": "quay-rope",
    "kind": "action",
    "split": "train",
    "player": "A rope, and be quick.",
    "exemplar": "Mind the knot.",
    "acts": {
        "state": "A rope hangs by the door.",
        "more": [
            {
                "name": "toss_line",
                "meaning": "throws the rope",
                "when": "asked",
                "parameters": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
            }
        ],
        "right": [[{"name": "toss_line", "arguments": {"to": ["player"]}}]],
        "tempting": [{"say": "*throws the rope*", "why": "The deed is told and not done."}],
    },
}


def break_quay(to: str) -> dict[str, Any]:
    right = [[{"name": "toss_line", "arguments": {"to": ["player"]}}, {"name": to, "arguments": {}}]]
    return {**QUAY, "acts": {**QUAY["acts"], "right": right}}  # type: ignore[dict-item]


def write_folder(folder: Path, scene: dict[str, Any]) -> Path:
    """Two characters, of whom one brings a scene."""
    for name in ("hob_tarrant", "bettany_crumb"):
        shutil.copy(SHEETS / f"{name}.yaml", folder)
    (folder / "scenes").mkdir()
    text = yaml.safe_dump({"character": "hob_tarrant", "scenes": [scene]})
    (folder / "scenes" / "quay.yaml").write_text(text, encoding="utf-8")
    return folder


def verify(cast: Cast, completion: Completion) -> float:
    assert cast.scene.acts is not None
    return verify_calls(
        read_reply(completion, cast.tools), cast.scene.acts, cast.tools, cast.sheet.actions.at_most
    ).value


def count_tasks(**params: Any) -> list[int]:
    return [SHIPPED.size(split, NpcArenaParams(**params)) for split in get_args(Split)]


def test_a_run_says_whether_it_wants_scenes_with_actions() -> None:
    without, only, both = count_tasks(), count_tasks(actions="only"), count_tasks(actions="with")
    assert [sum(pair) for pair in zip(without, only, strict=True)] == both
    assert (sum(only), min(only) > 0) == (len(CASTS), True)
    tasks = [[bool(SHIPPED.task("train", 3, NpcArenaParams(actions=chosen)).tools)] for chosen in ("without", "only")]
    assert (tasks, "actions" in NpcArenaParams().model_dump()) == ([[False], [True]], False)


def test_judges_read_the_line_and_what_could_be_done_but_not_what_is_right() -> None:
    panel = ScriptedPanel()
    arena = SHIPPED.draft(NpcArenaDraft(character="hob_tarrant", scene=QUAY))
    called = ParsedCall(name="toss_line", arguments={"to": "player"})
    group = [
        write_reply("Catch.", [called]),
        Completion(text="Catch. [toss_line]"),
        Completion(messages=(write_reply("", [called]).messages or ())[:1]),
        Completion(text="<think>Throw?</think>*throws the rope*"),
    ]
    scores = asyncio.run(arena.environment.score(arena.task, group, Tools(panel=panel)))
    (case,) = panel.cases
    scene: Any = case.document["scene"]
    assert case.candidates == ("Catch.", "Catch.", "*throws the rope*")
    assert (
        scene["what_is_here"],
        scene["actions"]["toss_line"],
        "checks those" in str(case.document["candidates_are"]),
    ) == (
        "A rope hangs by the door.",
        "throws the rope. When: asked",
        True,
    )
    assert not [word for word in ("told and not done", '"right"', "tempting") if word in json.dumps(case.document)]
    assert case.gates is not None
    assert (case.gates.allowed_actions, case.gates.most_actions) == ((), None)
    assert [(score.criteria[-1].value, score.flags) for score in scores] == [
        (1.0, ()),
        (0.0, ()),
        (1.0, ("no_words",)),
        (0.0, ("no_call",)),
    ]


def test_a_draft_whose_actions_do_not_fit_is_refused_by_its_field() -> None:
    with pytest.raises(InvalidRequest, match="neither the sheet nor `more` has an action 'fly'") as refused:
        SHIPPED.draft(NpcArenaDraft(character="hob_tarrant", scene=break_quay("fly")))
    assert refused.value.field == "draft.scene.acts.right.0.1"


def test_a_folder_whose_actions_do_not_fit_is_not_served(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, break_quay("fly"))
    why = r"hob_tarrant.yaml: its scene 'quay-rope': acts.right.0.1: neither the sheet nor `more` has an action 'fly'"
    with pytest.raises(EnvironmentUnavailable, match=why):
        NpcArena.read(folder)


def test_shipped_scenes_that_do_not_fit_a_changed_sheet_are_left_out(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, QUAY)
    sheet = yaml.safe_load((folder / "bettany_crumb.yaml").read_text(encoding="utf-8"))
    shipped = NpcArena.read(folder).size("train", NpcArenaParams(actions="only"))
    sheet["actions"]["allowed"] = []
    (folder / "bettany_crumb.yaml").write_text(yaml.safe_dump(sheet), encoding="utf-8")
    assert 1 == NpcArena.read(folder).size("train", NpcArenaParams(actions="only")) < shipped


# Shipped scenes.


def test_in_every_shipped_scene_the_right_reply_is_told_from_the_tempting_ones() -> None:
    written = [scene for scenes in read_scenes(PACKAGED_SCENES) for scene in scenes.scenes if scene.acts is not None]
    untold = [
        f"{cast.scene.id}: {doubt}"
        for cast in CASTS
        if cast.scene.acts is not None
        for doubt in find_untold(cast.sheet.actions, cast.scene.acts, cast.scene.exemplar)
    ]
    assert (len(CASTS), untold) == (len(written), [])
    assert [cast.scene.id for cast in CASTS if cast.scene.exemplar is None] == []


def call_nothing(cast: Cast) -> list[ParsedCall]:
    return []


def call_everything(cast: Cast) -> list[ParsedCall]:
    """Each tool once, with the first value that its schema lists."""
    made = []
    for tool in cast.tools:
        properties: Any = tool.function.parameters["properties"]
        arguments = {name: guess_value(properties[name]) for name in properties}
        made.append(ParsedCall(name=tool.function.name, arguments=arguments))
    return made


def call_first(cast: Cast) -> list[ParsedCall]:
    return call_everything(cast)[:1]


def guess_value(schema: dict[str, Any]) -> Any:
    return schema.get("enum", [{"integer": 1, "array": []}.get(schema.get("type", ""), "player")])[0]


@pytest.mark.parametrize("policy", [call_nothing, call_everything, call_first])
def test_a_policy_that_does_not_read_the_scene_gets_no_more_than_by_never_calling(
    policy: Callable[[Cast], Sequence[ParsedCall]],
) -> None:
    idle = fmean(cast.scene.acts is not None and not all(cast.scene.acts.right) for cast in CASTS)
    paid = fmean(verify(cast, write_reply("Aye.", policy(cast))) for cast in CASTS)
    assert 0.15 < idle < 0.5
    assert paid <= idle


def test_no_single_call_is_right_in_as_many_scenes_as_none() -> None:
    idle = fmean(verify(cast, Completion(text="Aye.")) for cast in CASTS)
    wanted = {
        json.dumps(call.model_dump(mode="json"), sort_keys=True): call
        for cast in CASTS
        if cast.scene.acts is not None
        for calls in cast.scene.acts.right
        for call in (one.build_minimal_call() for one in calls)
    }
    paid = [fmean(verify(cast, write_reply("Aye.", [call])) for cast in CASTS) for call in wanted.values()]
    assert max(paid) < idle


def test_what_is_right_is_paid_in_full_in_any_form() -> None:
    for cast in CASTS:
        assert cast.scene.acts is not None
        gold = [call.build_minimal_call() for call in cast.scene.acts.right[0]]
        told = "".join(f' {{"name": "{call.name}", "arguments": {json.dumps(call.arguments)}}}' for call in gold)
        said = Message(role="assistant", content=f"{cast.scene.exemplar}{told}")
        forms = (write_reply(cast.scene.exemplar or "", gold), Completion(messages=(said,)))
        assert [verify(cast, form) for form in forms] == [1.0, 1.0]
