"""A player of a scene that a model plays: who it is, what it is asked, and which lines it may say.

    played  {persona: a carter who is late, goal: to be let through before dark, knows: [the axle is cracked],
             hides: [the load is not hers], manner: short of breath, least_turns: 3, most_turns: 6}

The model is asked for one line at a time, in one message: its part, and the conversation as JSON lines, in which no
words pass for another's. It never sees the sheet. Rules by code refuse a line that is none of a player's: the model is
then told why and asked again. They are linear, since a model wrote what they read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, TypeAdapter, model_validator

from app.characters.lorebooks import spell_spoken
from app.characters.schema import SAID, Text, Texts
from app.domain.players import PlayerChoice, PlayerLine
from app.domain.tasks import Message
from app.domain.values import Frozen
from app.toolkit.templates import Template, read_packaged_data
from app.toolkit.thoughts import strip_thinking

MOST_REPLIES: Final = 8
_LONGEST_LINE: Final = 800
"""Characters of a line."""
_LONGEST_ANSWER: Final = 20_000
_MARKER: Final = re.compile(r"###|<\|?/?[a-z_]{2,20}\|?>|\[/?INST\]|```|\{\s*\"", re.IGNORECASE)
"""What belongs to a form or a template and to nobody's speech."""
_LABEL: Final = re.compile(r"\W{0,3}([^\n:：]{1,80}?)\W{0,3}[:：]")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = read_packaged_data(
    Path(__file__).parent / "player_words.yaml", TypeAdapter(dict[str, tuple[str, ...]])
)
_FAULTS: Final[Mapping[str, str]] = {
    "service": "it answers as an assistant, not as a player",
    "orders": "it speaks to a judge or to a model, not to the character",
}
_PROMPT: Final = Template.read(Path(__file__).parent / "player.j2")
PROMPT_DIGEST: Final = _PROMPT.digest


class PlayedPart(Frozen):
    """The player of a scene, for a model that plays it. Nothing of it reaches the policy; judges see what it says."""

    persona: Text
    goal: Text
    """What it wants of the conversation. It leaves when it has that, or sees that it will not."""
    knows: Annotated[Texts, SAID] = ()
    hides: Annotated[Texts, SAID] = ()
    """What it knows and does not say unless it is brought to."""
    manner: Annotated[Text | None, SAID] = None
    least_turns: Annotated[int, Field(ge=1, le=MOST_REPLIES)] = 2
    """Replies of the character before the player may leave."""
    most_turns: Annotated[int, Field(ge=2, le=MOST_REPLIES)] = 6
    """Replies of the character in the longest episode."""

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        if self.least_turns > self.most_turns:
            raise ValueError("least_turns: more than most_turns")
        return self


@dataclass(frozen=True)
class ScenePlayer:
    """The part in one scene. `before` is the conversation up to the first reply: who spoke, and what."""

    part: PlayedPart
    choice: PlayerChoice
    character: str
    """The name of whom it speaks to."""
    language: str
    setting: tuple[str, ...]
    """What both see: the place, the time."""
    before: tuple[tuple[str, str], ...]

    @property
    def most_replies(self) -> int:
        return self.part.most_turns

    def hear(self, message: Message) -> str:
        return strip_thinking(message.content or "").text.strip()

    def build_prompt(self, heard: Sequence[str], said: Sequence[str], discarded: str) -> str:
        lines = [*self.before, *_interleave(heard, said)]
        left = self.most_replies - len(heard)
        return _PROMPT.render(
            part=self.part,
            character=self.character,
            language=self.language,
            setting=self.setting,
            transcript=[json.dumps({who: text}, ensure_ascii=False) for who, text in lines],
            may_leave=len(heard) >= self.part.least_turns,
            is_last=left == 1,
            discarded=discarded,
        )

    def read_answer(self, answer: str, heard: Sequence[str], said: Sequence[str]) -> PlayerLine | str:
        line = _read_line(answer)
        if isinstance(line, str):
            return line
        if line.done and len(heard) < self.part.least_turns:
            return f"it leaves after {len(heard)} of at least {self.part.least_turns} replies of the character"
        if not line.say:
            return line if line.done else "it says nothing"
        earlier = (*(text for who, text in self.before if who == "player"), *said)
        theirs = (*(text for who, text in self.before if who != "player"), *heard)
        return _find_fault(line.say, self.character, earlier, theirs) or line


def _interleave(heard: Sequence[str], said: Sequence[str]) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for number, reply in enumerate(heard):
        lines.append(("character", reply))
        if number < len(said):
            lines.append(("player", said[number]))
    return lines


def _read_line(answer: str) -> PlayerLine | str:
    """The line of an answer, or what is wrong with its form."""
    text = strip_thinking(answer[:_LONGEST_ANSWER]).text
    begin = text.find("{")
    try:
        value, _ = json.JSONDecoder().raw_decode(text, max(begin, 0))
    except (ValueError, RecursionError):
        return 'it is no JSON object such as {"say": "...", "done": false}'
    if not isinstance(value, dict) or not isinstance(value.get("say", ""), str):
        return 'it has no text under "say"'
    if not isinstance(value.get("done", False), bool):
        return '"done" is neither true nor false'
    said = " ".join(value.get("say", "").encode("utf-8", "replace").decode().replace("\0", " ").split())
    return PlayerLine(say=said, done=value.get("done", False))


def _find_fault(line: str, character: str, earlier: Sequence[str], theirs: Sequence[str]) -> str | None:
    """What no line of a player is; None where all is right."""
    if len(line) > _LONGEST_LINE:
        return f"it is longer than {_LONGEST_LINE} characters"
    if _MARKER.search(line):
        return "it holds marks of a form or a template"
    if (label := _find_label(line, character)) is not None:
        return f"it begins with {label!r}: say the player's words alone"
    words = spell_spoken(line)
    for kind, phrases in _WORDS.items():
        if any(_holds(words, line, phrase) for phrase in phrases):
            return _FAULTS[kind]
    if any(words == spell_spoken(one) for one in earlier):
        return "the player has said this before"
    if any(words == spell_spoken(one) for one in theirs):
        return f"these are words of {character}"
    return None


def _find_label(line: str, character: str) -> str | None:
    """The name of a speaker that a line begins with: the character's, whole or a part of it, or that of a role."""
    found = _LABEL.match(line)
    if found is None:
        return None
    label = spell_spoken(found[1])
    roles = {" player ", " character ", " npc ", " assistant ", " user ", " system ", " say "}
    names = {spell_spoken(character), *(spell_spoken(part) for part in character.split())}
    return found[1] if label in roles | names else None


def _holds(words: str, line: str, phrase: str) -> bool:
    """Phrases of scripts without spaces are looked for as they stand."""
    return spell_spoken(phrase) in words or (not phrase.isascii() and " " not in phrase and phrase in line)
