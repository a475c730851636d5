"""Scenes: the situation, the conversation so far, the line to answer, and a scripted player."""

from operator import not_
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from app.characters.actions import DoneCalls, GameTool, SceneActs
from app.characters.company import (
    PLAYER,
    CompanyLine,
    OtherCharacter,
    SeatTurn,
    find_seat_fault,
    list_spoken_turns,
    order_turn,
    write_heard,
)
from app.characters.lorebooks import spell_spoken
from app.characters.memories import MOST_TALKS, EarlierTalk, SceneMemory, find_memory_fault
from app.characters.players import PlayedPart
from app.characters.schema import SAID, CharacterSheet, Disclosure, Language, Text, Word, Words
from app.domain.judging import Probes
from app.domain.values import Frozen, Name, Split

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
    "action",
    "memory",
    "company",
]
"""What a scene probes."""

MOST_TURNS = 8


class SceneLine(Frozen):
    """What somebody said. The character may have made calls with its line, or in place of one."""

    speaker: Literal["player", "npc"]
    text: Annotated[Text, Field(exclude_if=lambda text: not text)] = ""
    calls: DoneCalls = ()

    @model_validator(mode="after")
    def _require_something(self) -> Self:
        if not self.text and not self.calls:
            raise ValueError("text: a line needs words or calls")
        if self.calls and self.speaker == "player":
            raise ValueError("calls: the character alone makes calls")
        return self


class SceneEvent(Frozen):
    """A recent event that the character knows about. `time` is in the world's own words."""

    id: Name
    time: Text
    text: Text


class WithheldEvent(Frozen):
    """An event that the character cannot know; for judges and gates only."""

    id: Name
    text: Text
    reason: Text
    leak_terms: Annotated[Words, Field(min_length=1)]


class Bystander(Frozen):
    """Another person who speaks to the character."""

    name: Word
    text: Text


class SceneReaction(Frozen):
    """The player's line if the reply contains any of these words or phrases, ignoring case and punctuation."""

    any_of: Annotated[Words, Field(min_length=1)]
    say: Text

    def matches_reply(self, words: str) -> bool:
        """`words`: NFKC, case folded, with one space around each."""
        return any(spell_spoken(term) in words for term in self.any_of)


class PlayerTurn(Frozen):
    """The line of the first reaction that matches the character's last reply, else `say`."""

    when: tuple[SceneReaction, ...] = ()
    say: Text
    seat: Annotated[SeatTurn | None, SAID] = None
    """What others say here, and whether the character may let its turn pass; in scenes with others."""

    @model_validator(mode="after")
    def _require_lines_among_others(self) -> Self:
        for text in (self.say, *(reaction.say for reaction in self.when)) if self.seat is not None else ():
            CompanyLine(speaker=PLAYER, text=text)
        return self

    def choose_line(self, words: str) -> str:
        """`words`: of the reply, as `SceneReaction.matches_reply` takes them."""
        return next((reaction.say for reaction in self.when if reaction.matches_reply(words)), self.say)

    def list_said(self, words: str) -> tuple[tuple[str, str], ...]:
        """Who says what, as far as the character hears it. `words`: as above."""
        if self.seat is None:
            return ((PLAYER, self.choose_line(words)),)
        lines = order_turn(self.seat, self.choose_line(words), words)
        return tuple((line.speaker, line.text) for line in lines if line.is_heard)

    def write_message(self, words: str) -> str:
        """The same as one message. `words`: as above."""
        line = self.choose_line(words)
        return line if self.seat is None else write_heard(order_turn(self.seat, line, words))


class Scene(Frozen):
    """Everything but the character. It opens with a line of the player, an event, another's line or what several say:
    exactly one of `player`, `event`, `bystander` and `seat`. Nothing of `withheld`, `may_reveal`, `not_for`, `probes`,
    `exemplar`, `plain`, `generic`, `probe`, `memory` and `played` reaches the model, of `acts` its `state` and its
    actions alone, and of `earlier` and `seat` what the character heard."""

    id: Name
    kind: SceneKind
    split: Split
    location: Text | None = None
    """None: where the sheet's scenario says."""
    time: Text | None = None
    situation: Text | None = None
    history: tuple[SceneLine, ...] = ()
    player: Text | None = None
    event: Text | None = None
    """What happens before the character's eyes."""
    bystander: Bystander | None = None
    others: Annotated[tuple[OtherCharacter, ...], SAID] = ()
    """Further characters, who speak by script; with `seat`."""
    seat: Annotated[SeatTurn | None, SAID] = None
    """What has been said among several so far, in place of `history`, and what the reply to it should be."""
    turns: Annotated[tuple[PlayerTurn, ...], Field(max_length=MOST_TURNS - 1)] = ()
    """How the player goes on after each reply but the last; none in a scene of one reply."""
    played: Annotated[PlayedPart | None, SAID] = None
    """The player for a model that plays it, where params name one: it then goes on in place of `turns`. A scene with
    neither has one reply, and is a task for such params alone."""
    visible: tuple[SceneEvent, ...] = ()
    withheld: tuple[WithheldEvent, ...] = ()
    may_reveal: tuple[Name, ...] = ()
    """Secrets of the character whose condition is met here."""
    not_for: tuple[Name, ...] = ()
    """Characters to whom a generic scene does not apply."""
    probes: Probes = Probes()
    exemplar: Text | None = None
    """A reply that is known to be good here, for tests of judges; a sheet's exemplars answer a line in any scene."""
    plain: Annotated[Text | None, SAID] = None
    """A sound reply that shows little of the character: what an exemplar is compared with in calibration."""
    generic: Annotated[Text | None, SAID] = None
    """A weak reply that almost anybody could have given to almost any line, for calibration."""
    counterfactual_of: Name | None = None
    """Another scene of the same file, which this one equals but for one visible event that has not happened here, or
    but for what was said earlier: what is right there is wrong here."""
    probe: Annotated[Word | None, SAID] = None
    """The field that the scene probes, such as `relation: Mara` or `secret: 2`; its kind where nothing is said."""
    since: Annotated[AwareDatetime | None, SAID] = None
    """Game time of its newest event: the scene is no task of an earlier `as_of`."""
    sincere: Annotated[bool, Field(exclude_if=not_)] = False
    """The player asks sincerely and outside the story whether a program answers; in scenes of one reply of the kind
    `ai_disclosure`. Judges and gates heed it where sheet or scene set `disclosure`."""
    disclosure: Annotated[Disclosure | None, SAID] = None
    """As `boundaries.disclosure` of the sheet, for this scene alone."""
    acts: Annotated[SceneActs | None, SAID] = None
    """What the character can do here, and what it should; in scenes of one reply. Without it, typed actions of the
    sheet are not offered."""
    earlier: Annotated[tuple[EarlierTalk, ...], Field(max_length=MOST_TALKS), SAID] = ()
    """Conversations before this scene, oldest first."""
    memory: Annotated[SceneMemory | None, SAID] = None
    """What a reply should make of `earlier`; in scenes of one reply."""
    game_tools: Annotated[tuple[GameTool, ...] | None, Field(exclude_if=lambda tools: tools is None)] = None
    """In place of `acts`, for play and games: tools of the game, offered beside the actions of the sheet. Calls are
    neither right nor wrong. Null offers none, an empty list the actions of the sheet that are tools."""
    begun: Annotated[SceneLine | None, SAID] = None
    """What the character has already done in answer to the opening. The reply goes on behind it."""

    @model_validator(mode="after")
    def _require_one_reply_where_code_verifies(self) -> Self:
        if (self.acts is not None) != (self.kind == "action"):
            raise ValueError("acts: a scene has them exactly when its kind is `action`")
        if self.acts is not None and self.turns:
            raise ValueError("acts: a scene with actions has one reply, so no turns")
        if self.memory is not None and self.turns:
            raise ValueError("memory: a scene whose memory is verified has one reply, so no turns")
        if self.game_tools is not None and (self.turns or self.acts is not None):
            raise ValueError("game_tools: not with turns or acts")
        if self.played is not None and (
            self.acts is not None or self.memory is not None or self.game_tools is not None or self.player is None
        ):
            raise ValueError("played: only in a scene with a `player` line, and without acts, memory and game_tools")
        if self.begun is not None and (self.begun.speaker == "player" or not self.begun.calls):
            raise ValueError("begun: wanted is a line of the character with calls")
        return self

    @model_validator(mode="after")
    def _require_sincere_question(self) -> Self:
        if self.sincere and (self.kind != "ai_disclosure" or self.player is None or self.turns or self.played):
            raise ValueError("sincere: only a scene of the kind `ai_disclosure` with a `player` line and without turns")
        return self

    @model_validator(mode="after")
    def _require_alternation(self) -> Self:
        # chat templates of several model families refuse anything but user and assistant in turn, user first
        if any(line.speaker != ("player", "npc")[turn % 2] for turn, line in enumerate(self.history)):
            raise ValueError("history must alternate, player first")
        if len(self.history) % 2:
            raise ValueError("history must end with the character's line")
        return self

    @model_validator(mode="after")
    def _require_one_opening(self) -> Self:
        if sum(opening is not None for opening in (self.player, self.event, self.bystander, self.seat)) != 1:
            raise ValueError("a scene opens with exactly one of player, event, bystander and seat")
        return self

    @model_validator(mode="after")
    def _require_fitting_company(self) -> Self:
        if (self.seat is None) == (self.kind == "company"):
            raise ValueError("seat: a scene has it exactly when its kind is `company`")
        if self.seat is None:
            if self.others or any(turn.seat is not None for turn in self.turns):
                raise ValueError("others: a scene with others opens with `seat`")
            return self
        for field in ("history", "exemplar", "plain", "generic", "memory", "game_tools", "begun", "played"):
            if getattr(self, field) != Scene.model_fields[field].default:
                raise ValueError(f"{field}: not in a scene of kind `company`; its lines and replies are in `seat`")
        if fault := find_seat_fault(self.others, self.seat, [turn.seat for turn in self.turns]):
            raise ValueError(fault)
        return self

    @model_validator(mode="after")
    def _require_fitting_memory(self) -> Self:
        said = (self.opening, *(line.text for line in self.history))
        if self.kind == "memory" and not self.earlier:
            raise ValueError("earlier: a scene of kind `memory` has conversations before it")
        if fault := find_memory_fault(self.earlier, self.memory, "\n".join(said)):
            raise ValueError(fault)
        return self

    @property
    def opening(self) -> str:
        """The first message. What is no speech of the player stands behind or between square brackets."""
        if self.bystander is not None:
            return f"[{self.bystander.name}] {self.bystander.text}"
        if self.seat is not None:
            return list_spoken_turns(self.seat.lines)[-1].text
        return self.player or f"[{self.event}]"

    @property
    def said_before(self) -> tuple[SceneLine, ...]:
        """What was said in this scene before the opening, in turn. What others said counts as the player's."""
        if self.seat is None:
            return self.history
        turns = list_spoken_turns(self.seat.lines)[:-1]
        return tuple(SceneLine(speaker="npc" if turn.is_own else "player", text=turn.text) for turn in turns)

    @property
    def seats(self) -> tuple[SeatTurn, ...]:
        """Of the opening and of each further turn; none in a scene without others."""
        return tuple(seat for seat in (self.seat, *(turn.seat for turn in self.turns)) if seat is not None)

    @property
    def is_verified(self) -> bool:
        """Whether code decides a part of the reward."""
        return self.acts is not None or self.memory is not None or self.seat is not None

    @property
    def max_turns(self) -> int:
        return 1 + len(self.turns) if self.turns or self.played is None else self.played.most_turns

    def stage(self, *, plays: bool) -> "Scene | None":
        """The scene with the one player that it has where a model plays players, or where none does: never both, and
        None where there is no player."""
        if self.played is None:
            return self
        if plays:
            return self.model_copy(update={"turns": ()}) if self.turns else self
        return self.model_copy(update={"played": None}) if self.turns else None


_COUNTERFACTUAL = frozenset(
    ("id", "visible", "earlier", "memory", "probes", "exemplar", "plain", "generic", "counterfactual_of")
)
"""Fields that may differ between a scene and its counterfactual."""


class SceneSet(Frozen):
    """One file of scenes, for one character or, without one, for every character of that language."""

    character: Name | None = None
    language: Language = "en"
    scenes: Annotated[tuple[Scene, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _require_exemplar_owner(self) -> Self:
        kinds = {"exemplar": "an exemplar", "plain": "a plain reply", "generic": "a generic reply"}
        replies = [
            (scene.id, kinds[name]) for scene in self.scenes for name in kinds if getattr(scene, name) is not None
        ]
        if self.character is None and replies:
            raise ValueError(f"{replies[0][0]}: {replies[0][1]} needs a scene file with a character")
        seated = next((scene.id for scene in self.scenes if scene.seat is not None), None)
        if self.character is None and seated is not None:
            raise ValueError(f"{seated}: a scene with others needs a scene file with a character")
        return self

    @model_validator(mode="after")
    def _require_own_actions(self) -> Self:
        if self.character is None:
            for scene, acts in ((scene, scene.acts) for scene in self.scenes if scene.acts is not None):
                added = {action.name for action in acts.more}
                stray = next(((place, name) for place, name in acts.named_actions if name not in added), None)
                if stray is not None:
                    raise ValueError(
                        f"{scene.id}: acts.{stray[0]}: a scene for any character adds {stray[1]!r} in `more` itself"
                    )
        return self

    @model_validator(mode="after")
    def _require_one_difference(self) -> Self:
        scenes = {scene.id: scene for scene in self.scenes}
        for scene in (scene for scene in self.scenes if scene.counterfactual_of is not None):
            factual = scenes.get(scene.counterfactual_of or "")
            if factual is None or factual.counterfactual_of is not None:
                raise ValueError(
                    f"{scene.id}: counterfactual_of must name another scene of this file, itself a factual one"
                )
            if fault := _find_difference_fault(scene, factual):
                raise ValueError(f"{scene.id}: {fault}")
        return self

    def suits(self, scene: Scene, sheet: CharacterSheet) -> bool:
        if self.character is not None:
            return self.character == sheet.id
        return self.language == sheet.voice.language and sheet.id not in scene.not_for


def _find_difference_fault(scene: Scene, factual: Scene) -> str:
    """What a scene has no right to differ in from its factual one; empty if all is right."""
    different = {name for name in Scene.model_fields if getattr(scene, name) != getattr(factual, name)}
    if different - _COUNTERFACTUAL:
        return f"differs from {factual.id} in {min(different - _COUNTERFACTUAL)} too"
    if "earlier" in different:
        return f"differs from {factual.id} in both earlier and visible" if "visible" in different else ""
    without = [factual.visible[:place] + factual.visible[place + 1 :] for place in range(len(factual.visible))]
    return "" if scene.visible in without else f"visible must be that of {factual.id} without one event"
