"""The roster: characters in their scenes, drafts of either, editions of all of them, and scripted episodes.

A cast is one character in one scene. Params choose among all casts; a draft, which is a sheet or a scene that is being
written, becomes a cast like any other. An edition is what authors may edit, as the texts of a version: the sheets and
the scenes of a folder. In an episode a scripted player goes on after each reply. It is replayed from the messages after
the prompt, so any replica can serve any turn.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError

from app.characters.actions import read_reply, score_silence, verify_calls
from app.characters.casting import Cast, build_conversation, cast_in_scene
from app.characters.company import PLAYER, Move, read_move, score_passes, verify_turns
from app.characters.lorebooks import PreparedBooks, recall_from, spell_spoken
from app.characters.memories import list_kept_terms, verify_memory
from app.characters.players import ScenePlayer
from app.characters.scenes import Scene, SceneEvent, SceneSet
from app.characters.schema import LANGUAGES, CharacterSheet, SheetSecret, Text
from app.characters.sheet_checks import parse_findable
from app.domain.errors import InvalidRequest
from app.domain.faults import build_refusal
from app.domain.judging import GateFacts, SpokenLine
from app.domain.players import PlayerChoice
from app.domain.scores import Score, VerifiedPart, add_part
from app.domain.tasks import Completion, Message, Passage, Turn
from app.domain.values import FiniteJson, Frozen, Name, Split, canonical_json, digest, estimate_tokens, suggest
from app.toolkit.replay import iterate_turns, score_forgery
from app.toolkit.thoughts import strip_thinking

_ROSTERS = 64
"""Choices of scenes by params that are kept at a time."""

Turns = Literal["single", "multi", "both"]
Written = Literal["by_hand", "composed", "all"]
Acting = Literal["without", "with", "only"]
_Choice = tuple[Split, Turns, Written, Acting, datetime | None, bool]


class CastRoster:
    """The characters in their scenes, by what params choose."""

    def __init__(self, casts: Sequence[Cast], composed: frozenset[str] = frozenset()) -> None:
        """`composed`: ids of scenes that nobody wrote."""
        self._all = tuple(casts)
        self._composed = composed
        self._by_ids = {(cast.sheet.id, cast.scene.id): cast for cast in casts}
        self._timed = any(cast.scene.since is not None for cast in casts)
        # A dict, not `lru_cache` of a method: rosters of drafts would hold themselves.
        self._lists: dict[_Choice, tuple[Cast, ...]] = {}

    def list_casts(
        self,
        split: Split,
        turns: Turns,
        written: Written,
        acting: Acting,
        as_of: datetime | None,
        *,
        plays: bool = False,
    ) -> tuple[Cast, ...]:
        """In the order given. `plays`: a model plays players."""
        # without timed scenes every moment gives the same list, which is then kept once
        choice = (split, turns, written, acting, as_of if self._timed else None, plays)
        listed = self._lists.get(choice)
        if listed is None:
            if len(self._lists) >= _ROSTERS:
                self._lists.clear()
            self._lists[choice] = listed = self._filter(*choice)
        return listed

    def find_cast(self, character: str, scene: str, *, plays: bool = False) -> Cast | None:
        cast = self._by_ids.get((character, scene))
        return None if cast is None else stage_cast(cast, plays=plays)

    def _filter(
        self, split: Split, turns: Turns, written: Written, acting: Acting, as_of: datetime | None, plays: bool
    ) -> tuple[Cast, ...]:
        staged = (stage_cast(cast, plays=plays) for cast in self._all)
        return tuple(
            cast
            for cast in staged
            if cast is not None
            and cast.scene.split == split
            and _is_chosen(cast, turns)
            and (acting == "with" or (acting == "only") == (cast.scene.acts is not None))
            and (written == "all" or (written == "composed") == (cast.scene.id in self._composed))
            and (as_of is None or cast.scene.since is None or cast.scene.since <= as_of)
        )


def stage_cast(cast: Cast, *, plays: bool) -> Cast | None:
    """With the player that the scene has there, as `Scene.stage`."""
    scene = cast.scene.stage(plays=plays)
    if scene is None:
        return None
    return cast if scene is cast.scene else Cast(cast.sheet, scene)


def _is_chosen(cast: Cast, turns: Turns) -> bool:
    return turns == "both" or (turns == "multi") == (cast.scene.max_turns > 1)


def list_utterances(cast: Cast) -> tuple[str, ...]:
    return (*(line.text for line in cast.scene.said_before if line.text), cast.scene.opening)


def derive_seed(character: str, scene: str, params: BaseModel, utterances: Sequence[str]) -> str:
    """Seed for the random parts of a task, the same for every caller."""
    return digest([character, scene, params.model_dump(mode="json"), utterances])


def recall_passages(book: PreparedBooks, cast: Cast, seed: str, budget_tokens: int) -> tuple[Passage, ...]:
    """What a scene recalls from the character's own lorebook."""
    return tuple(
        Passage(id=one.entry.id, text=one.entry.content, source=f"lorebook/{one.book}", kind="lore")
        for one in recall_from(book, list_utterances(cast), seed, budget_tokens, estimate_tokens)
        if one.told
    )


def compose_brief(prompt: str, cast: Cast) -> str:
    """What the character is told of the scene, the conversation, and what its last line is meant to test."""
    said = [one for one in build_conversation(cast) if one.role != "tool" and one.content]
    lines = [f"{'player' if one.role == 'user' else 'character'}: {one.content}" for one in said]
    return "\n".join((prompt, "", "The conversation:", *lines, *filter(None, (cast.scene.probes.notes,))))


# Drafts.

PartT = TypeVar("PartT", bound=BaseModel)

_SheetText = Annotated[str, Field(min_length=1, max_length=1024 * 1024)]


class DraftEvent(Frozen):
    """An event that the character knows of."""

    time: Text = "just now"
    """When it happened, in the words of the world."""
    text: Text


class SheetDraft(Frozen):
    """A character (`character` or `sheet`) in a scene (`line` or `scene`)."""

    character: Name | None = None
    """Id of a served sheet."""
    sheet: _SheetText | dict[str, FiniteJson] | None = None
    """A whole sheet: YAML or JSON text, or an object."""
    line: Text | None = None
    """What the player says, in a scene of one reply."""
    scene: Name | dict[str, FiniteJson] | None = None
    """Id of a served scene, or a scene in the format of the scene files, episodes included. In one with `game_tools`
    the actions of the sheet are offered as tools."""
    events: Annotated[tuple[DraftEvent, ...], Field(max_length=50)] = ()


def cast_draft(draft: SheetDraft, sheets: Sequence[CharacterSheet], scenes: Mapping[str, Scene]) -> Cast:
    """InvalidRequest naming `draft.<field>`, down to the field of the sheet or scene."""
    sheet, scene = _resolve_sheet(draft, sheets), _resolve_scene(draft, scenes)
    cast = cast_in_scene(sheet, scene, {served.id: served for served in sheets})
    if (fault := cast.fault) is not None:
        raise InvalidRequest(fault.words, field=f"draft.scene.{fault.field}")
    events = tuple(
        SceneEvent(id=f"draft-{number}", time=event.time, text=event.text)
        for number, event in enumerate(draft.events, start=1)
    )
    return replace(cast, scene=cast.scene.model_copy(update={"visible": scene.visible + events}))


def fill_names_in(draft: SheetDraft, sheets: Sequence[CharacterSheet], scenes: Mapping[str, Scene]) -> SheetDraft:
    """With the served sheet and scene themselves in place of their names. InvalidRequest for names of none."""
    filled: dict[str, JsonValue] = {}
    if draft.sheet is None:
        filled |= {"character": None, "sheet": _resolve_sheet(draft, sheets).model_dump(mode="json")}
    if isinstance(draft.scene, str):
        filled |= {"scene": _resolve_scene(draft, scenes).model_dump(mode="json")}
    return draft.model_copy(update=filled)


def parse_parts(draft: SheetDraft) -> SheetDraft:
    """With sheet and scene as objects that are valid. InvalidRequest as `cast_draft`."""
    parts: dict[str, JsonValue] = {"sheet": _resolve_sheet(draft, ()).model_dump(mode="json", exclude_unset=True)}
    if draft.line is None or draft.scene is not None:
        parts["scene"] = _resolve_scene(draft, {}).model_dump(mode="json", exclude_unset=True)
    return draft.model_copy(update=parts)


def list_stand_ins(draft: SheetDraft) -> tuple[CharacterSheet, ...]:
    """The sheet of a draft under the names of the others in its scene. Where a draft is only tried, their sheets are
    not at hand, and have been read before."""
    sheet, scene = _resolve_sheet(draft, ()), _resolve_scene(draft, {})
    others = (other for other in scene.others if other.sheet is not None and other.sheet != sheet.id)
    return tuple(
        sheet.model_copy(
            update={
                "meta": sheet.meta.model_copy(update={"id": other.sheet}),
                "secrets": tuple(
                    SheetSecret(id=name, text=name, reveal_if=name, leak_terms=(name,)) for name in other.shares
                ),
            }
        )
        for other in others
    )


def build_single_scene_set(cast: Cast) -> SceneSet:
    """A scene set with the scene of this cast only."""
    return SceneSet(character=cast.sheet.id, language=cast.sheet.voice.language, scenes=(cast.scene,))


def _resolve_sheet(draft: SheetDraft, sheets: Sequence[CharacterSheet]) -> CharacterSheet:
    if (draft.character is None) == (draft.sheet is None):
        raise InvalidRequest("give either character or sheet", field="draft.sheet")
    if draft.sheet is None:
        served = next((sheet for sheet in sheets if sheet.id == draft.character), None)
        if served is None:
            near = suggest(str(draft.character), (sheet.id for sheet in sheets))
            raise InvalidRequest(f"there is no character {draft.character!r}{near}", field="draft.character")
        return served
    if isinstance(draft.sheet, str):
        parsed = parse_findable(Path("sheet"), draft.sheet, CharacterSheet)
        if isinstance(parsed, list):
            first = parsed[0]
            line = f", in line {first.line}" if first.field else ""
            raise InvalidRequest(f"{first.message}{line}", field=".".join(filter(None, ("draft.sheet", first.field))))
        return parsed[1]
    return _validate_part(CharacterSheet, draft.sheet, "draft.sheet")


def _resolve_scene(draft: SheetDraft, scenes: Mapping[str, Scene]) -> Scene:
    if (draft.line is None) == (draft.scene is None):
        raise InvalidRequest("give either line or scene", field="draft.line")
    if draft.line is not None:
        return Scene(id="draft", kind="conversation", split="train", player=draft.line)
    if isinstance(draft.scene, str):
        if draft.scene not in scenes:
            near = suggest(draft.scene, scenes)
            raise InvalidRequest(f"there is no scene {draft.scene!r}{near}", field="draft.scene")
        return scenes[draft.scene]
    kind = "action" if (draft.scene or {}).get("acts") else "conversation"
    defaults: dict[str, FiniteJson] = {"id": "draft", "kind": kind, "split": "train"}
    return _validate_part(Scene, defaults | (draft.scene or {}), "draft.scene")


def _validate_part(model: type[PartT], value: Mapping[str, FiniteJson], name: str) -> PartT:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise build_refusal(error, model, *name.split(".")) from None


# Editions.

# Sheets and scenes are texts of one list: canonical JSON of a sheet never begins so.
_START: Final = '{"scene_sets":'


class OwnScenes(Frozen):
    """Scenes of a version, beside its sheets."""

    scene_sets: tuple[SceneSet, ...]


def write_edition(sheets: Sequence[CharacterSheet], scene_sets: Sequence[SceneSet]) -> tuple[str, ...]:
    own = OwnScenes(scene_sets=tuple(scene_sets))
    return tuple(canonical_json(one.model_dump(mode="json")) for one in (*sheets, own))


def read_edition(texts: Sequence[str]) -> tuple[list[CharacterSheet], tuple[SceneSet, ...] | None]:
    """Versions from before scenes could be written hold none: None. ValueError."""
    scenes = next((text for text in texts if text.startswith(_START)), None)
    sheets = [CharacterSheet.model_validate_json(text) for text in texts if text is not scenes]
    return sheets, None if scenes is None else OwnScenes.model_validate_json(scenes).scene_sets


# Episodes.

_ReplyFilter = Callable[[str], str]
"""Extracts what the player hears of a reply: not its thinking."""

_ATTENTION = 4_000
"""Characters of a reply that a scripted player reacts to."""


@dataclass(frozen=True)
class SceneEpisode:
    """One run of a scene. `replies` are as the model wrote them, `heard` as the player heard them, and `said` is what
    the player answered to all of them but the last."""

    scene: Scene
    replies: tuple[str, ...]
    heard: tuple[str, ...]
    said: tuple[str, ...] = ()

    @classmethod
    def from_completion(cls, scene: Scene, completion: Completion, hear: _ReplyFilter) -> "SceneEpisode":
        """A plain text is an episode of one reply. What comes after the scene's end is ignored. InvalidRequest for
        messages that the scene did not give."""
        if completion.messages is None:
            return cls(scene, (completion.answer,), (hear(completion.answer),))
        return cls.replay(scene, completion.messages[: _count_messages(scene)], hear)

    @classmethod
    def replay(cls, scene: Scene, messages: Sequence[Message], hear: _ReplyFilter) -> "SceneEpisode":
        """From everything after the prompt. InvalidRequest naming `messages[i]` for the first that is out of turn, is
        not what the player said there, or comes after the end."""
        replies: list[str] = []
        heard: list[str] = []
        said: list[str] = []
        for field, message in iterate_turns(messages, scene.max_turns):
            words = message.content or ""
            if message.role == "assistant":
                replies.append(words)
                heard.append(hear(words))
                continue
            # What a model said as the player was compared with its stored lines before.
            if scene.played is None and message != _find_player_line(scene, heard):
                raise InvalidRequest("this is not what the player said here", field=field)
            said.append(words)
        return cls(scene, tuple(replies), tuple(heard), tuple(said[: max(len(replies) - 1, 0)]))

    def write_transcript(self) -> str:
        """One JSON object a line, so that nothing in a reply can pass for a line of the player. Straight quotation
        marks become typographic ones, which a judge can quote as it reads them."""
        lines: list[str] = []
        for number, reply in enumerate(self.heard):
            lines.append(_write_line("npc", reply))
            if number + 1 < len(self.heard):
                lines += (_write_line(speaker, text) for speaker, text in self._list_answers(number))
        return "\n".join(lines)

    def _list_answers(self, number: int) -> Sequence[tuple[str, str]]:
        """Who said what after this reply, as far as the character heard it."""
        if not self.scene.seats:
            return ((PLAYER, self.said[number]),)
        return self.scene.turns[number].list_said(_normalise_reply(self.heard[number]))

    def list_lines(self, facts: GateFacts) -> tuple[SpokenLine, ...]:
        """Each reply with what was said before it; a single empty reply if there is none."""
        spoken: list[SpokenLine] = []
        player_said, history = facts.player_said, facts.history
        for number, reply in enumerate(self.replies or ("",)):
            if number:
                history = (*history, self.heard[number - 1])
                player_said = f"{player_said}\n{self.said[number - 1]}"
            line_facts = facts.model_copy(update={"player_said": player_said, "history": history})
            spoken.append(SpokenLine(text=reply, gates=line_facts))
        return tuple(spoken)


@dataclass(frozen=True)
class CandidateEntry:
    """What judges see of a completion; `lines` as in a case."""

    text: str
    lines: tuple[SpokenLine, ...] = ()
    flags: tuple[str, ...] = ()
    """Added to the judges' flags."""
    messages: tuple[Message, ...] = ()
    """The episode that `text` tells."""
    verified: tuple[VerifiedPart, ...] = ()
    """What code knows of it beside the judges: what its calls are worth, and what it recalls."""


def build_entry(cast: Cast, completion: Completion, facts: GateFacts, hear: _ReplyFilter) -> CandidateEntry | Score:
    """What judges get, or the score of what needs no judge: a forged transcript, and calls without words."""
    scene = cast.scene
    if scene.max_turns == 1:
        return _build_single_entry(cast, completion, hear)
    try:
        episode = SceneEpisode.from_completion(scene, completion, hear)
    except InvalidRequest as error:
        return score_forgery(error)
    flags = ("after_end",) if len(completion.messages or ()) > _count_messages(scene) else ()
    lines, messages = episode.list_lines(facts), completion.messages or ()
    if not scene.seats:
        return CandidateEntry(episode.write_transcript(), lines, flags, messages)
    moves = _read_moves(cast, episode.heard, [scene.opening, *episode.said])
    wanted = [seat.passing for seat in scene.seats]
    if {*moves} == {"passes"}:
        return score_passes(moves, wanted)
    # A pass is no line: gates read the others.
    spoken = tuple(line for line, move in zip(lines, moves, strict=False) if move != "passes") or lines
    return CandidateEntry(episode.write_transcript(), spoken, flags, messages, (verify_turns(moves, wanted),))


def _read_moves(cast: Cast, heard: Sequence[str], asked: Sequence[str]) -> list[Move]:
    """`asked`: what was said before each reply."""
    language = cast.sheet.voice.language
    pairs = zip(heard, asked, strict=False)
    return [read_move(reply, before, cast.other_names, language) for reply, before in pairs]


def _build_single_entry(cast: Cast, completion: Completion, hear: _ReplyFilter) -> CandidateEntry | Score:
    scene, line = cast.scene, completion.answer
    verified: list[VerifiedPart] = []
    if scene.seat is not None:
        moves, wanted = _read_moves(cast, [hear(line)], [scene.opening]), [scene.seat.passing]
        if moves == ["passes"]:
            return score_passes(moves, wanted)
        verified.append(verify_turns(moves, wanted))
    if tools := cast.tools:
        reply = read_reply(completion, tools)
        line = reply.line
        if scene.acts is not None:
            action = verify_calls(reply, scene.acts, tools, cast.sheet.actions.at_most)
            if reply.is_silent:
                return score_silence(action)
            verified.append(action)
    if scene.memory is not None:
        kept = list_kept_terms(scene.earlier)
        verified.append(verify_memory(hear(line), scene.memory, kept, cast.sheet.voice.language))
    return CandidateEntry(line, verified=tuple(verified))


def _count_messages(scene: Scene) -> int:
    """Messages of a whole episode: a reply after each line of the player's, the one in the prompt included."""
    return 2 * scene.max_turns - 1


def find_next_turn(scene: Scene, messages: Sequence[Message], hear: _ReplyFilter) -> Turn:
    """What follows the character's last line. InvalidRequest as in a replay, and if that line is missing."""
    if scene.played is not None:
        raise InvalidRequest("a model plays the player here: only a gateway knows its lines", field="task_id")
    episode = SceneEpisode.replay(scene, messages, hear)
    if len(messages) % 2 == 0:
        field = f"messages[{len(messages) - 1}]" if messages else "messages"
        raise InvalidRequest("the last message must be the character's", field=field)
    line = _find_player_line(scene, episode.heard)
    return Turn(messages=() if line is None else (line,), done=line is None)


def find_scene_player(cast: Cast, choice: PlayerChoice | None, transcript: Sequence[Message]) -> ScenePlayer | None:
    """Who plays the player of a staged scene; None where a script does. `transcript` is the conversation of the
    prompt."""
    part, scene = cast.scene.played, cast.scene
    if choice is None or part is None:
        return None
    speakers = {"user": "player", "assistant": "character"}
    return ScenePlayer(
        part=part,
        choice=choice,
        character=cast.sheet.identity.name,
        language=LANGUAGES.get(cast.sheet.voice.language, (cast.sheet.voice.language,))[0],
        setting=tuple(filter(None, (cast.location, scene.time))),
        before=tuple((speakers[one.role], one.content) for one in transcript if one.role in speakers and one.content),
    )


def _find_player_line(scene: Scene, heard: Sequence[str]) -> Message | None:
    """What the player says after these replies; None if the scene is over."""
    if not heard or len(heard) > len(scene.turns):
        return None
    return Message(role="user", content=scene.turns[len(heard) - 1].write_message(_normalise_reply(heard[-1])))


def _normalise_reply(reply: str) -> str:
    """The words of a reply in the form that conditions are matched against, with one space around each."""
    return spell_spoken(reply[:_ATTENTION])


def _write_line(speaker: str, text: str) -> str:
    plain = " ".join(text.replace('"', "”").split())
    return json.dumps({speaker: plain}, ensure_ascii=False)


def extract_spoken(reply: str) -> str:
    return strip_thinking(reply).text.strip()


def complete_score(score: Score, entry: CandidateEntry) -> Score:
    """The judges' score with what code knows of the completion."""
    if entry.flags:
        score = score.model_copy(update={"flags": (*score.flags, *entry.flags)})
    return reduce(add_part, entry.verified, score)
