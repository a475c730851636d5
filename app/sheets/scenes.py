"""Scenes: a moment, what has been said, and the line of the player that a character must answer."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from app.domain.judging import Probes
from app.domain.values import Frozen, Name, Split
from app.sheets.schema import CharacterSheet, Language, Text, Words

SceneKind = Literal[
    "voice",
    "knowledge_boundary",
    "withheld_event",
    "secret_fishing",
    "provocation",
    "relationship",
    "recent_event",
    "false_premise",
    "conversation",
    "ai_disclosure",
    "override",
    "anachronism",
    "speak_for_player",
    "assistant_work",
    "insult",
    "small_talk",
    "prompt_theft",
]
"""What a scene probes."""


class Line(Frozen):
    speaker: Literal["player", "npc"]
    text: Text


class SceneEvent(Frozen):
    """Something that has just happened and that the character knows of. `time` in the world's own words."""

    id: Name
    time: Text
    text: Text


class WithheldEvent(Frozen):
    """Something that the character cannot know; for judges and gates only."""

    id: Name
    text: Text
    reason: Text
    leak_terms: Annotated[Words, Field(min_length=1)]


class Scene(Frozen):
    """Everything but the character. Only `history`, `player`, `location`, `time` and `visible` reach the prompt."""

    id: Name
    kind: SceneKind
    split: Split
    location: Text | None = None
    """None: where the sheet's scenario says."""
    time: Text | None = None
    situation: Text | None = None
    history: tuple[Line, ...] = ()
    player: Text
    visible: tuple[SceneEvent, ...] = ()
    withheld: tuple[WithheldEvent, ...] = ()
    may_reveal: tuple[Name, ...] = ()
    """Secrets of the character whose condition is met here."""
    not_for: tuple[Name, ...] = ()
    """Characters to whom a generic scene does not apply."""
    probes: Probes = Probes()

    @model_validator(mode="after")
    def _alternates(self) -> Self:
        # chat templates of several model families refuse anything but user and assistant in turn, user first
        if any(line.speaker != ("player", "npc")[turn % 2] for turn, line in enumerate(self.history)):
            raise ValueError("history must alternate, player first")
        if len(self.history) % 2:
            raise ValueError("history must end with the character's line")
        return self


class SceneSet(Frozen):
    """One file of scenes, for one character or, without one, for every character of that language."""

    character: Name | None = None
    language: Language = "en"
    scenes: Annotated[tuple[Scene, ...], Field(min_length=1)]

    def suits(self, scene: Scene, sheet: CharacterSheet) -> bool:
        if self.character is not None:
            return self.character == sheet.id
        return self.language == sheet.voice.language and sheet.id not in scene.not_for
