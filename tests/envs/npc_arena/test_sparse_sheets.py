"""Prompts of sheets that say little: what is not said leaves no gap."""

import re
from itertools import pairwise

import pytest

from app.characters.loading import read_sheet
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import find_packaged_folder
from tests.support.tiers import examples

HOB = read_sheet(find_packaged_folder("character_sheets") / "hob_tarrant.yaml")
BLOCKS = ("identity", "core", "voice", "knowledge", "boundaries", "actions", "scenario")
OPTIONAL = [
    (block, name)
    for block in BLOCKS
    for name, field in type(getattr(HOB, block)).model_fields.items()
    if not field.is_required() and field.default in (None, ())
]
HELLO = SceneSet.model_validate(
    {"character": "hob_tarrant", "scenes": [{"id": "hello", "kind": "voice", "split": "train", "player": "Hello."}]}
)


def without(left_out: list[tuple[str, str]]) -> CharacterSheet:
    sheet = HOB
    for block, name in left_out:
        part = getattr(sheet, block)
        default = type(part).model_fields[name].default
        sheet = sheet.model_copy(update={block: part.model_copy(update={name: default})})
    return sheet


def prompt(sheet: CharacterSheet) -> str:
    return NpcArena([sheet], [HELLO]).task("train", 0, NpcArenaParams()).messages[0].content or ""


def gaps(text: str) -> list[str]:
    """Empty bullets, words of the template's own for nothing, headings without anything below them."""
    lines = text.splitlines()
    empty = [line for line in lines if re.search(r"^\s*-\s*$|: ?$|None|, ,|: \.|: ;|\(\)", line)]
    introductions = {"lines):", "anything up:", "as you know:"}
    empty = [line for line in empty if not any(line.endswith(end) for end in introductions)]
    twice = [first + second for first, second in pairwise(lines) if not first and not second]
    bare = [
        first
        for first, second in pairwise(lines)
        if (first.startswith("#") or first.endswith(tuple(introductions))) and not second
    ]
    return empty + twice + bare


def test_there_is_something_to_leave_out() -> None:
    assert ({block for block, _ in OPTIONAL}, gaps(prompt(HOB))) == (set(BLOCKS), [])


@pytest.mark.parametrize(("block", "name"), OPTIONAL)
def test_one_thing_unsaid_leaves_no_gap(block: str, name: str) -> None:
    assert gaps(prompt(without([(block, name)]))) == []


def test_many_things_unsaid_leave_no_gap() -> None:
    draws = SeededRandom("unsaid")
    found = [gaps(prompt(without(draws.some(OPTIONAL, 2 + draws.below(20))))) for _ in range(examples(200, fewest=10))]
    assert [line for lines in found for line in lines if "Who you are" not in line] == []
