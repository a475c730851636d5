"""Earlier conversations: what a prompt tells of long ones, and what code makes of what a reply recalls."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from app.characters.memories import EarlierTalk, SceneMemory, choose_told_talks, list_kept_terms, verify_memory
from app.characters.scenes import Scene
from tests.support.tables import read_table

TABLE = read_table(__file__, "memories.yaml", dict[str, Any])
EARLIER = TypeAdapter(tuple[EarlierTalk, ...]).validate_python(TABLE["earlier"])
MEMORY = {
    "must_recall": [["Sunday"]],
    "must_not_recall": ["Friday"],
    "never_told": ["horse", "I promised"],
    "tempting": [{"say": "Friday.", "why": "It was corrected."}],
}
SCENE = {"id": "a", "kind": "memory", "split": "train", "player": "When?", "earlier": TABLE["earlier"]}


@pytest.mark.parametrize(("language", "changes", "reply", "value", "flags"), TABLE["verified"])
def test_what_is_recalled_is_told_from_what_was_corrected_or_never_said(
    language: str, changes: dict[str, Any], reply: str, value: float, flags: list[str]
) -> None:
    part = verify_memory(reply, SceneMemory.model_validate({**MEMORY, **changes}), list_kept_terms(EARLIER), language)
    assert (round(part.value, 6), part.flags, part.cap) == (round(value, 6), tuple(flags), None)


@pytest.mark.parametrize(("changes", "fault"), TABLE["faults"])
def test_a_scene_whose_memory_does_not_fit_is_refused(changes: dict[str, Any], fault: str) -> None:
    changed = {**changes, "memory": {**MEMORY, **changes.get("memory", {})}}
    with pytest.raises(ValidationError, match=fault.replace("[", r"\[")):
        Scene.model_validate({**SCENE, **changed})


def talk(when: str, *texts: str, heard: str = "openly") -> EarlierTalk:
    """The player and the character in turn."""
    lines = [{"speaker": ("player", "npc")[turn % 2], "text": text} for turn, text in enumerate(texts)]
    return EarlierTalk.model_validate({"when": when, "heard": heard, "lines": lines})


def test_of_a_long_conversation_a_prompt_tells_the_turns_that_the_line_is_about() -> None:
    idle = [f"The weather of day {number} was fine, and so was all the rest of it." for number in range(60)]
    first = talk("long ago", "My brother sails on Sunday.", "Sunday, then.", *idle)
    told = choose_told_talks((first, talk("lately", "Good evening.", "Evening.")), "When does my brother sail?")
    kept = [line.text for each in told for line in each.lines]
    short = (talk("once", "One."), talk("later", "Two.", "Three."))
    assert (kept[:2], kept[-2:], len(kept) < 62, len(kept) % 2, choose_told_talks(short, "")) == (
        ["My brother sails on Sunday.", "Sunday, then."],
        ["Good evening.", "Evening."],
        True,
        0,
        short,
    )


def test_the_most_telling_turn_is_told_however_long_it_is() -> None:
    long = talk("once", "He sails. " * 90, "Aye. " * 190)
    assert choose_told_talks((talk("before", "Hm."), long), "When does he sail, if he sails?") == (long,)
