"""Memories of talk: what players and characters said to each other, in worlds that keep it.

A memory is one turn of a conversation, as the one character heard it that took part. It stands apart from events: no
search of events, list, page, export or prompt of training reads these tables, and every statement here but those that
remove names the player. What a word finds is the newest memories that have it, by hashes of (player, character, first
world of the branches, word), so that a search looks at nothing of other players. A branch remembers what its parents
do up to its time.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    RowMapping,
    Text,
    UniqueConstraint,
    and_,
    bindparam,
    delete,
    insert,
    literal_column,
    or_,
    select,
)
from sqlmodel import Field

from app.domain.errors import Conflict
from app.domain.values import digest
from app.domain.worlds import (
    Event,
    FoundEvent,
    SearchFindings,
    Talk,
    TalkLine,
    TalkMemory,
    TalkSearch,
    extract_terms,
)
from app.features.worlds.store_worlds import (
    LineageLevel,
    build_order_key,
    load_newest_events,
    load_world_lineage,
    worlds,
)
from app.store.database import StorePart, reads, writes
from app.store.statements import PreparedStatement, from_micros, is_storable, to_micros
from app.store.table_records import TableRecord, build_sequence_column, get_table


class TalkMemoryTable(TableRecord, table=True):
    """`player` is a keyed hash. `world` is a world's number; `time` is game time, null in a world without events.
    `place` is where in its conversation it was said. `body` is JSON."""

    __tablename__ = "talk_memories"
    __table_args__ = (
        UniqueConstraint("memory_id"),
        Index("ix_talk_memories_player", "player", "character", "world", "number"),
        Index("ix_talk_memories_turn_id", "turn_id"),
        Index("ix_talk_memories_said_at", "said_at"),
        Index("ix_talk_memories_world", "world"),
        {"sqlite_autoincrement": True},
    )
    number: int = Field(sa_column=build_sequence_column("number"))
    memory_id: str
    player: str
    world: int = Field(sa_type=BigInteger)
    character: str
    time: int | None = Field(default=None, sa_type=BigInteger)
    said_at: int = Field(sa_type=BigInteger)
    place: str
    turn_id: str | None = None
    body: str = Field(sa_type=Text)


class TalkWordTable(TableRecord, table=True):
    """`word` is a hash of who remembers whom, and of the word."""

    __tablename__ = "talk_words"
    __table_args__ = (Index("ix_talk_words_number", "number"), {"sqlite_with_rowid": False})
    word: int = Field(sa_column=Column("word", BigInteger(), primary_key=True, autoincrement=False))
    number: int = Field(
        sa_column=Column(
            "number",
            BigInteger(),
            ForeignKey("talk_memories.number", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        )
    )


memories = get_table(TalkMemoryTable)
words = get_table(TalkWordTable)

_LINES: Final = TypeAdapter(tuple[TalkLine, ...])
_MOST_TERMS: Final = 16
"""Of a question, the last ones."""
_COMMON: Final = 256
"""A word that so many memories have is looked for only where all are as common."""
_MOST_FOUND: Final = 32
"""By words, and of the newest."""
_LONGEST_TEXT: Final = 4000
"""Of an event."""
_NEWEST_FIRST: Final = 2**62
"""Ids of candidates count down from it: of equal ones the ranking takes the lowest id."""


class TalkStore(StorePart):
    """Every player has their own."""

    @writes(lambda talks: build_order_key(talks[0].world))
    def add(self, connection: Connection, talks: Sequence[Talk]) -> int:
        """What a game tells; how many of them are new. Conflict where the world keeps no memories."""
        new = 0
        for talk in talks:
            levels = _find_remembering(connection, talk.world, locks=True)
            if not levels:
                raise Conflict(f"world {talk.world!r} keeps no memories: set its `memory` first", field="world")
            levels[0].require_open()
            same = select(memories.c.number).where(memories.c.memory_id == _name_memory(levels, talk))
            if connection.execute(same).first() is None:
                _insert(connection, levels, talk, self.database.read_clock())
                new += 1
        return new

    @reads
    def search(self, connection: Connection, search: TalkSearch) -> tuple[SearchFindings, Sequence[TalkMemory]]:
        """Candidates for a prompt as events of the kind `talk`, and beside each its memory, in the order in which they
        were kept. Nothing where the world keeps no memories."""
        levels = _find_remembering(connection, search.world)
        if not levels:
            return SearchFindings(as_of=None), ()
        as_of = search.as_of or _find_newest_time(connection, levels)
        frequencies, by_words = _find_by_words(connection, levels, search)
        rows = _load(connection, levels, search, as_of, by_words)
        found = [_build_memory(row) for row in rows]
        listed = [_build_event(row["number"], memory, as_of) for row, memory in zip(rows, found, strict=True)]
        findings = SearchFindings(
            as_of=as_of or max((event.time for event in listed), default=None),
            visible=tuple(FoundEvent(event, frozenset({"text"})) for event in listed),
            frequencies=frequencies,
            events=max([_COMMON, *frequencies.values()]),
            common=_COMMON,
        )
        return findings, found

    @reads
    def list_own(
        self, connection: Connection, player: str, limit: int, before: int | None = None
    ) -> list[tuple[int, TalkMemory]]:
        """The newest first, those with numbers before `before`."""
        here = [memories.c.player == player, *([] if before is None else [memories.c.number < before])]
        newest = _SELECT.where(*here).order_by(memories.c.number.desc()).limit(limit)
        return [(row["number"], _build_memory(row)) for row in connection.execute(newest).mappings()]


# Writes, within the transactions of those who keep turns.


def remember(connection: Connection, talk: Talk, said_at: int) -> None:
    """In place of what was remembered of this place in the conversation. Nothing in a world that keeps no memories."""
    levels = _find_remembering(connection, talk.world, locks=True)
    if levels:
        connection.execute(delete(memories).where(memories.c.memory_id == _name_memory(levels, talk)))
        _insert(connection, levels, talk, said_at)


def find_turn(connection: Connection, talk: Talk) -> str | None:
    """The kept turn from which this place of the conversation is remembered; None where it is not, or with these very
    lines."""
    levels = _find_remembering(connection, talk.world)
    if not levels:
        return None
    here = memories.c.memory_id == _name_memory(levels, talk)
    row = connection.execute(select(memories.c.turn_id, memories.c.body).where(here)).one_or_none()
    return None if row is None or row[1] == _write_lines(talk) else row[0]


def forget_turns(connection: Connection, player: str, turn_id: str | None) -> None:
    """What is remembered of a kept turn of the player, or of all of them."""
    of_turn = memories.c.turn_id.is_not(None) if turn_id is None else memories.c.turn_id == turn_id
    connection.execute(delete(memories).where(memories.c.player == player, of_turn))


def forget_player(connection: Connection, player: str) -> int:
    """All that is remembered of the player; how many there were."""
    return connection.execute(delete(memories).where(memories.c.player == player)).rowcount


def forget_world(connection: Connection, world: int) -> None:
    connection.execute(delete(memories).where(memories.c.world == world))


def forget_old(connection: Connection, before: int) -> int:
    return connection.execute(delete(memories).where(memories.c.said_at < before)).rowcount


def _insert(connection: Connection, levels: Sequence[LineageLevel], talk: Talk, said_at: int) -> None:
    time = talk.time or _find_newest_time(connection, levels)
    row = {
        "memory_id": _name_memory(levels, talk),
        "player": talk.player,
        "world": levels[0].number,
        "character": talk.character,
        "time": None if time is None else to_micros(time),
        "said_at": said_at,
        "place": talk.place,
        "turn_id": talk.turn_id,
        "body": _write_lines(talk),
    }
    number = connection.execute(insert(memories).values(row).returning(memories.c.number)).scalar_one()
    terms = dict.fromkeys(term for line in talk.lines for term in extract_terms(line.text))
    keys = {_hash_word(talk.player, talk.character, levels[-1].number, term) for term in terms}
    if keys:
        connection.execute(insert(words), [{"word": key, "number": number} for key in sorted(keys)])


def _find_remembering(connection: Connection, world: str, *, locks: bool = False) -> list[LineageLevel]:
    """The lineage of a world that keeps memories; empty for others. `locks`: nobody changes that until the transaction
    ends, so that what is written then does not stay behind."""
    if not is_storable(world):
        return []
    kept = select(worlds.c.number).where(worlds.c.name == world, worlds.c.memory)
    is_kept = connection.execute(kept.with_for_update(read=True) if locks else kept).first() is not None
    return load_world_lineage(connection, world) if is_kept else []


def _find_newest_time(connection: Connection, levels: Sequence[LineageLevel]) -> datetime | None:
    return next((one.event.time for one in load_newest_events(connection, levels, 1)), None)


def _name_memory(levels: Sequence[LineageLevel], talk: Talk) -> str:
    return f"memory_{digest([levels[0].number, talk.player, talk.character, talk.conversation])[:32]}"


def _write_lines(talk: Talk) -> str:
    return _LINES.dump_json(talk.lines).decode()


# Searches.

_COLUMNS: Final = ("number", "memory_id", "character", "time", "said_at", "body")
_SELECT: Final = select(*(memories.c[name] for name in _COLUMNS), worlds.c.name.label("world")).join_from(
    memories, worlds, worlds.c.number == memories.c.world
)
_SELECT_BY_WORD: Final = PreparedStatement(
    lambda _: (
        select(words.c.number)
        .where(words.c.word == bindparam("word"))
        .order_by(words.c.number.desc())
        .limit(literal_column(str(_COMMON)))
    )
)


def _find_by_words(
    connection: Connection, levels: Sequence[LineageLevel], search: TalkSearch
) -> tuple[dict[str, int], list[int]]:
    """How many memories have each term, counted up to `_COMMON`, and those that have the rarest ones."""
    having: dict[str, list[int]] = {}
    for term in search.terms[:_MOST_TERMS]:
        key = _hash_word(search.player, search.character, levels[-1].number, term)
        having[term] = [number for (number,) in _SELECT_BY_WORD.fetch(connection, word=key)]
    rare = {term: numbers for term, numbers in having.items() if 0 < len(numbers) < _COMMON}
    scores: defaultdict[int, float] = defaultdict(float)
    for numbers in (rare or having).values():
        for number in numbers:
            scores[number] += 1 / len(numbers)
    best = sorted(scores, key=lambda number: (-scores[number], -number))
    return {term: len(numbers) for term, numbers in having.items()}, best[:_MOST_FOUND]


def _load(
    connection: Connection,
    levels: Sequence[LineageLevel],
    search: TalkSearch,
    as_of: datetime | None,
    by_words: Sequence[int],
) -> list[RowMapping]:
    """Those that were found by words, and the newest."""
    now = None if as_of is None else to_micros(as_of)
    here = [
        memories.c.player == search.player,
        memories.c.character == search.character,
        or_(*(_is_past(level, now) for level in levels)),
        *([memories.c.place.not_in(sorted(search.places))] if search.places else []),
        *([] if search.until is None else [memories.c.said_at <= to_micros(search.until)]),
    ]
    newest = _SELECT.where(*here).order_by(memories.c.number.desc()).limit(_MOST_FOUND)
    found = list(connection.execute(newest).mappings())
    if by_words:
        found += connection.execute(_SELECT.where(*here, memories.c.number.in_(by_words))).mappings()
    by_number = {row["number"]: row for row in found}
    return [by_number[number] for number in sorted(by_number)]


def _is_past(level: LineageLevel, now: int | None) -> ColumnElement[bool]:
    """What was said after a branch, or after the moment of the question, never happened there."""
    until = level.until if now is None else min(level.until, now)
    return and_(memories.c.world == level.number, or_(memories.c.time.is_(None), memories.c.time <= until))


def _build_event(number: int, memory: TalkMemory, as_of: datetime | None) -> Event:
    return Event(
        id=f"{_NEWEST_FIRST - number}",
        time=memory.time or as_of or memory.said_at,
        text="\n".join(line.text for line in memory.lines)[:_LONGEST_TEXT],
        kind="talk",
        visibility=(memory.character,),
    )


def _build_memory(row: RowMapping) -> TalkMemory:
    return TalkMemory(
        memory_id=row["memory_id"],
        world=row["world"],
        character=row["character"],
        time=None if row["time"] is None else from_micros(row["time"]),
        said_at=from_micros(row["said_at"]),
        lines=_LINES.validate_json(row["body"]),
    )


def _hash_word(player: str, character: str, first_world: int, term: str) -> int:
    """A 64-bit hash. Collisions are harmless: what is found is read again by its player."""
    told = "\0".join((player, character, str(first_world), term))
    return int.from_bytes(blake2b(told.encode(), digest_size=8).digest(), "big", signed=True)
