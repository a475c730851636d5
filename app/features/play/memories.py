"""What characters remember of a player: turns of earlier talk, in worlds whose `memory` is set.

A memory is made of a kept turn, or posted by a game. It belongs to one player, a keyed hash, and to the one character
who heard it. The prompt of a moment tells those that fit, chosen as events are: by words and by time. They enter the
prompt as the earlier talk of a scene does, which marks them as what was said. Nothing else in the service reads them:
not tasks of training, not searches, pages of others or exports.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Annotated, Final

from pydantic import Field

from app.characters.casting import format_game_time
from app.characters.memories import EarlierLine, EarlierTalk
from app.domain.values import Frozen, Name, digest, estimate_tokens
from app.domain.worlds import EventsAdded, GameTime, Talk, TalkLine, TalkLines, TalkMemory, TalkSearch
from app.features.play.model import PlayReply, RememberedTurn, clean_line
from app.features.worlds.service import Moment
from app.features.worlds.store_memories import TalkStore
from app.rag.world_retriever import extract_query_terms, rank_found

_MOST_TOLD: Final = 6
"""Turns of earlier talk in a prompt."""
_BUDGET_TOKENS: Final = 400
"""Of all of them together: as many as a prompt tells of earlier talk."""
_LONGEST_TOLD: Final = 600
"""Characters of a line, about those of 100 words."""


class PostedTalk(Frozen):
    """A conversation that a player had with characters of a world, as a game tells it. Each character that heard it
    remembers it."""

    world: Name
    heard_by: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)]
    """Ids of the characters who were there."""
    time: GameTime | None = None
    """Game time. Null: that of the newest event."""
    lines: TalkLines
    """In the order in which they were said."""


class PlayMemories:
    def __init__(self, store: TalkStore) -> None:
        self._store = store

    async def recall(
        self, player: str, world: str, moment: Moment, until: datetime | None = None
    ) -> tuple[EarlierTalk, ...]:
        """What the character is told of earlier talk with this player, the oldest first: nothing that the conversation
        itself has. `until`: of what was said by then."""
        search = TalkSearch(
            world=world,
            player=player,
            character=moment.character,
            terms=extract_query_terms(_find_opening(moment)),
            as_of=moment.as_of,
            places=frozenset(turn.place for turn in _list_turns(moment)),
            until=until,
        )
        findings, found = await self._store.search(search)
        by_event = {one.event.id: memory for one, memory in zip(findings.visible, found, strict=True)}
        ranked = [by_event[one.event.id] for one, _ in rank_found(findings, search.terms)]
        said = {clean_line(line.content) for line in moment.conversation}
        told = _fit([one for one in ranked if not said.issuperset(line.text for line in one.lines)])
        places = {memory.memory_id: number for number, memory in enumerate(found)}
        return _group_sessions(sorted(told, key=lambda one: (_get_seconds(one.time), places[one.memory_id])))

    async def post(self, player: str, posted: PostedTalk) -> EventsAdded:
        """Durable on return. Repeated talk is known. Conflict where the world keeps no memories."""
        session = digest(posted.model_dump(mode="json", include={"time", "lines"}))
        talks = [
            Talk(posted.world, player, character, posted.time, digest([session, number]), said.place, said.lines)
            for character in dict.fromkeys(posted.heard_by)
            for number, said in enumerate(_split(posted.lines))
        ]
        new = await self._store.add(talks)
        return EventsAdded(new=new, known=len(talks) - new)

    async def list_own(self, player: str, limit: int, before: int | None) -> tuple[tuple[TalkMemory, ...], int | None]:
        """The newest first, and what to pass as `before` for the next ones."""
        listed = await self._store.list_own(player, limit, before)
        after = listed[-1][0] if len(listed) == limit else None
        return tuple(memory for _, memory in listed), after


def _fit(ranked: Sequence[TalkMemory]) -> list[TalkMemory]:
    """The best that fit. A turn is told whole, but for lines that are long."""
    told: list[TalkMemory] = []
    room = _BUDGET_TOKENS
    for memory in ranked:
        lines = tuple(line.model_copy(update={"text": _cut(line.text)}) for line in memory.lines)
        needed = sum(estimate_tokens(line.text) for line in lines)
        if needed <= room and len(told) < _MOST_TOLD:
            room -= needed
            told.append(memory.model_copy(update={"lines": lines}))
    return told


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TOLD else f"{text[: _LONGEST_TOLD - 1]}…"


def _get_seconds(time: datetime | None) -> float:
    return float("-inf") if time is None else time.timestamp()


def _group_sessions(told: Sequence[TalkMemory]) -> tuple[EarlierTalk, ...]:
    """What was said at one moment of the game is one session."""
    return tuple(
        EarlierTalk(
            when="earlier" if time is None else format_game_time(time),
            lines=tuple(EarlierLine(speaker=line.speaker, text=line.text) for memory in said for line in memory.lines),
        )
        for time, said in groupby(told, key=lambda memory: memory.time)
    )


# Turns of a conversation: lines of the player, and what the character answered.


@dataclass(frozen=True)
class _SaidTurn:
    """`conversation` and `place` as of a Talk; without an answer where that is still to come."""

    conversation: str
    place: str
    lines: tuple[TalkLine, ...]


def build_remembered(
    player: str, world: str, moment: Moment, as_of: datetime | None, turn_id: str, replies: Sequence[PlayReply]
) -> RememberedTurn | None:
    """What a world remembers of a kept turn; None where nobody says a word. Of several replies it is the first one,
    until the conversation goes on from another. What happens before the character's eyes is no talk: of that it
    remembers what it said."""
    *before, now = _list_turns(moment)
    said = clean_line(replies[0].text)
    reply = (TalkLine(speaker="npc", text=said),) if said else ()
    lines = (*(now.lines if moment.event is None else ()), *reply)

    def build(said: _SaidTurn, lines: tuple[TalkLine, ...], turn_id: str | None) -> Talk:
        return Talk(world, player, moment.character, as_of, said.conversation, said.place, lines, turn_id)

    former = build(before[-1], before[-1].lines, None) if before else None
    return RememberedTurn(build(now, lines, turn_id), former) if lines else None


def _find_opening(moment: Moment) -> str:
    return moment.event if moment.event is not None else moment.conversation[-1].content


def _list_turns(moment: Moment) -> list[_SaidTurn]:
    """The last one is that which is answered now."""
    said = [
        TalkLine(speaker="player" if line.role == "user" else "npc", text=clean_line(line.content))
        for line in moment.conversation
        if line.content.strip()
    ]
    if moment.event is not None:
        said.append(TalkLine(speaker="player", text=clean_line(f"[{moment.event}]")))
    return _split(said)


def _split(said: Sequence[TalkLine]) -> list[_SaidTurn]:
    """Each turn begins with a line of the player that follows one of the character."""
    turns: list[list[TalkLine]] = []
    for line in said:
        if not turns or (line.speaker == "player" and turns[-1][-1].speaker == "npc"):
            turns.append([])
        turns[-1].append(line)
    return list(_name_turns(turns))


def _name_turns(turns: Sequence[Sequence[TalkLine]]) -> Iterator[_SaidTurn]:
    former, conversation = "", ""
    for lines in turns:
        asked = [line.text for line in lines if line.speaker == "player"]
        conversation = digest([conversation, former, *asked])
        yield _SaidTurn(conversation, digest([former, *asked]), tuple(lines))
        former = lines[-1].text
