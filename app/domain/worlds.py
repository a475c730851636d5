"""Events in a game's worlds, who may know of them, and search results."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, groupby
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from app.domain.tasks import Context
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name, Unit, WholeNumber, require_encodable

# Lorebooks: entries that keywords in the conversation bring into the prompt.

SecondaryLogic = Literal["and_any", "and_all", "not_any", "not_all"]
"""How secondary keys restrict a match: any must match, all must match, none may match, or not all may match."""

Key = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(require_encodable)]
Content = Annotated[str, Field(max_length=20_000), AfterValidator(require_encodable)]
Depth = Annotated[WholeNumber, Field(ge=0, le=1000)]


class LoreEntry(Frozen):
    """One piece of lore."""

    id: Key
    content: Content
    name: str = ""
    enabled: bool = True
    keys: tuple[Key, ...] = ()
    """Any of these keys in the scanned text activates the entry."""
    secondary_keys: tuple[Key, ...] = ()
    logic: SecondaryLogic = "and_any"
    constant: bool = False
    """Always active."""
    order: WholeNumber = 100
    """Lower values come earlier in the prompt."""
    priority: WholeNumber | None = None
    """Lower values are dropped first when the budget is short. Defaults to `order`."""
    position: Literal["before_character", "after_character"] = "before_character"
    scan_depth: Depth | None = None
    """How many of the last messages are scanned. Defaults to the book's value."""
    case_sensitive: bool | None = None
    whole_words: bool | None = None
    regex: bool = False
    """Keys are regular expressions (RE2, linear time)."""
    probability: Unit = 1.0
    """Drawn once per task from its seed, so that all completions of a group get the same prompt."""
    prevent_recursion: bool = False
    """Its content does not activate other entries."""
    exclude_recursion: bool = False
    """Other entries' contents do not activate it."""
    extensions: dict[str, FiniteJson] = {}
    """Preserved on import and export; not used by the service."""


class Lorebook(Frozen):
    name: str = ""
    description: str = ""
    scan_depth: Depth = 2
    """How many of the last messages are scanned for keys."""
    token_budget: Annotated[WholeNumber, Field(ge=0, le=100_000)] | None = None
    """Maximum tokens of its entries in a prompt; no limit of its own if omitted."""
    recursive: bool = False
    """Contents of activated entries are scanned too."""
    case_sensitive: bool = False
    whole_words: bool = False
    entries: Annotated[tuple[LoreEntry, ...], Field(max_length=5000)] = ()
    extensions: dict[str, FiniteJson] = {}


EventId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
"""Chosen by the game: letters, digits and `. _ : -`."""


def _require_iso_time(value: object) -> object:
    """Refuses numbers, which would be read as seconds since 1970."""
    if isinstance(value, datetime) or (isinstance(value, str) and "-" in value[1:]):
        return value
    raise ValueError("wanted is a time in ISO 8601, such as 2031-04-03T09:15:00Z")


def _convert_to_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("the time zone is missing: end it with Z for UTC, or with an offset such as +02:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("wanted is a time in the years 1 to 9999 of UTC") from None


def _wrap_single_id(value: object) -> object:
    return [value] if isinstance(value, str) else value


GameTime = Annotated[datetime, BeforeValidator(_require_iso_time), AfterValidator(_convert_to_utc)]
"""Time in the game's world: ISO 8601 with a time zone, stored in UTC. A game maps its calendar onto it."""

Phrase = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(require_encodable)]
EventText = Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(require_encodable)]


class Event(Frozen):
    """Something that happened in a world."""

    id: EventId
    time: GameTime
    """When it happened. Nobody knows of it earlier."""
    text: EventText
    """The text that is put into prompts."""
    kind: Phrase | None = None
    actors: Annotated[tuple[Phrase, ...], Field(max_length=64)] = ()
    location: Phrase | None = None
    visibility: Literal["public"] | Annotated[tuple[Phrase, ...], Field(max_length=256)] = "public"
    """`public`, or who may know it: character ids, and circles (factions, households, places) that characters belong
    to. Actors are not added automatically; an empty list means nobody."""
    importance: Annotated[WholeNumber, Field(ge=0, le=10)] = 5
    """From 0 (not worth mentioning) to 10 (everybody talks about it)."""
    tags: Annotated[tuple[Phrase, ...], Field(max_length=64)] = ()
    valid_from: GameTime | None = None
    """Start of validity; `time` if omitted."""
    valid_to: GameTime | None = None
    """End of validity, exclusive, such as the end of an offer."""
    supersedes: Annotated[tuple[EventId, ...], BeforeValidator(_wrap_single_id), Field(max_length=64)] = ()
    """Events that this one makes out of date, for those who know of it. A single id needs no list."""
    leak_terms: Annotated[tuple[Phrase, ...], Field(max_length=64)] = ()
    """Terms in a reply that reveal knowledge of this event by a character who cannot know it."""

    @property
    def searchable_text(self) -> str:
        """The text that searches match."""
        return "\n".join((self.text, self.kind or "", self.location or "", *self.actors, *self.tags))


class KnownEvent(Frozen):
    """An event as a world has or last had it. A withdrawn one never happened, until it is corrected."""

    event: Event
    is_withdrawn: bool


DocumentKind = Literal["event", "lorebook"]
"""What has earlier texts."""


class EarlierText(Frozen):
    """Who wrote what an event or a lorebook said before it was changed or deleted, and when. Null: the text is older
    than such notes."""

    number: int
    """From 1 for each event or lorebook."""
    author: str | None
    """The name of the key; empty where no key was needed."""
    written_at: datetime | None
    replaced_by: str | None
    """Who changed or deleted it."""
    replaced_at: datetime | None


class WrittenText(EarlierText):
    content: Event | Lorebook


class World(Frozen):
    """One timeline of a game. A branch shares its parent's past up to `branched_at`, inclusive."""

    name: Name
    parent: Name | None = None
    branched_at: GameTime | None = None
    events: int = 0
    """Number of events of this world itself, including withdrawn ones. A branch that keeps an earlier text of its
    parent's event, or corrects it, has it as an event of its own."""
    newest: GameTime | None = None
    """Time of the newest event, including its parent's past; null without events."""
    created_at: datetime
    closed_at: datetime | None = None
    """When it was closed. Since then it takes no events, and prompts cannot use it."""
    memory: bool = False
    """Whether its characters remember what players said to them."""


class TalkLine(Frozen):
    speaker: Literal["player", "npc"]
    text: EventText


TalkLines = Annotated[tuple[TalkLine, ...], Field(min_length=1, max_length=200)]


@dataclass(frozen=True)
class Talk:
    """What a player and a character said to each other, as that character heard it: a turn of a conversation.
    `conversation` is a digest of all that was said up to the line that is answered: another reply to it takes the place
    of the former one. `place` is one of that line and the one before, by which a conversation knows its own turns, also
    where its beginning was cut off."""

    world: str
    player: str
    character: str
    time: datetime | None
    """Game time. None: that of the newest event."""
    conversation: str
    place: str
    lines: tuple[TalkLine, ...]
    turn_id: str | None = None
    """The kept turn that it is from."""


class TalkMemory(Frozen):
    """A turn of talk that a character remembers of its player."""

    memory_id: str
    world: str
    character: str
    time: GameTime | None
    said_at: datetime
    lines: tuple[TalkLine, ...]


@dataclass(frozen=True)
class TalkSearch:
    """A search for what a character remembers of a player. `as_of`: game time; None means the newest event's.
    `places`: those of the conversation itself, which are left out. `until`: when it was said at the latest."""

    world: str
    player: str
    character: str
    terms: tuple[str, ...]
    as_of: datetime | None = None
    places: frozenset[str] = frozenset()
    until: datetime | None = None


class EventsAdded(Frozen):
    """How many events were added. `known` events already existed with the same content and are unchanged."""

    new: int
    known: int


SearchWay = Literal["text", "newest", "important"]
"""How a search found an event."""

Obstacle = Literal["future", "not_visible", "superseded", "not_yet_valid", "no_longer_valid"]
"""Why an event is kept from a character."""


@dataclass(frozen=True)
class EventSearch:
    """A search for events. `as_of`: game time; None means the newest event's. `names`: the asker's id and circles.
    `terms`: distinct terms from `app.domain.worlds`."""

    world: str
    as_of: datetime | None
    names: frozenset[str]
    terms: tuple[str, ...]
    most: int = 64
    """Maximum number of events per way of finding them."""


@dataclass(frozen=True)
class FoundEvent:
    event: Event
    ways: frozenset[SearchWay]


@dataclass(frozen=True)
class HiddenMatch:
    """An event that was found and is kept from the asker. `by` is the event that supersedes it."""

    event: Event
    reason: Obstacle
    by: str | None = None


@dataclass(frozen=True)
class SearchFindings:
    """Search results: candidates for a prompt, and related events that are withheld. `frequencies`: for each term, in
    how many of the visible `events` it occurs, counted up to `common`. Terms that common are ignored unless all
    are."""

    as_of: datetime | None
    """None in a world without events."""
    visible: tuple[FoundEvent, ...] = ()
    hidden: tuple[HiddenMatch, ...] = ()
    frequencies: Mapping[str, int] | None = None
    events: int = 0
    common: int | None = None


class RankedEvent(Frozen):
    """A candidate event with the parts of its score, each scaled to [0, 1] over all candidates."""

    event: Event
    recency: Unit
    importance: Unit
    relevance: Unit
    score: FiniteNumber
    """Sum of the parts, as in Park et al. 2023 (arXiv 2304.03442), section 4.1, with all weights 1."""
    ways: tuple[SearchWay, ...]
    tokens: int
    """Estimated tokens of the event in a prompt."""
    told: bool
    """Whether it is in the prompt. If not, the token budget was used up."""


class RecalledLore(Frozen):
    """A lorebook entry that was activated."""

    lorebook: str
    entry: str
    because: str
    """Why it was activated: the matching key, `constant`, or another reason in words."""
    tokens: int
    told: bool


class HiddenEvent(Frozen):
    event: Event
    reason: Obstacle
    by: str | None = None
    """The event that supersedes it."""


class RetrievalExplanation(Frozen):
    """The passages that a prompt would contain, best first, with reasons."""

    as_of: datetime | None
    events: tuple[RankedEvent, ...] = ()
    lore: tuple[RecalledLore, ...] = ()
    hidden: tuple[HiddenEvent, ...] = ()
    budget_tokens: int
    context: Context


# Search terms of a text: folded words, or character pairs for scripts without spaces between words.

MAX_TERMS: Final = 4096
"""Maximum number of terms of one text."""
MAX_TERM_LENGTH: Final = 64
"""Maximum length in characters; longer words are cut off."""

_COMBINING_MARKS: Final = tuple(
    chain(
        range(0x0300, 0x0370),  # accents of Latin, Greek and Cyrillic letters
        range(0x0591, 0x05BE),  # Hebrew points, which most texts leave out
        (0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7),
        range(0x064B, 0x0660),  # Arabic ones
    )
)
_MARK_REMOVAL: Final = dict.fromkeys(_COMBINING_MARKS)

_UNSEGMENTED_RANGES: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),  # Hangul: words have spaces between them, but also endings that change
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

_BETWEEN, _WORD, _PAIRS = 0, 1, 2

_ASCII_WORD: Final = re.compile(f"([a-z0-9]{{1,{MAX_TERM_LENGTH}}})[a-z0-9]*")
"""What the general way finds in ASCII texts, at a tenth of its time."""


def extract_terms(text: str) -> tuple[str, ...]:
    """All terms in order, with repetitions, up to MAX_TERMS. Takes linear time."""
    if text.isascii():
        return tuple(_ASCII_WORD.findall(text.lower())[:MAX_TERMS])
    found: list[str] = []
    for kind, characters in groupby(_fold_text(text), _classify_character):
        if kind == _WORD:
            found.append("".join(characters)[:MAX_TERM_LENGTH])
        elif kind == _PAIRS:
            found.extend(_split_into_pairs("".join(characters)))
        if len(found) >= MAX_TERMS:
            break
    return tuple(found[:MAX_TERMS])


def _fold_text(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", folded).translate(_MARK_REMOVAL))


def is_unsegmented(character: str) -> bool:
    """Whether the character belongs to a script without spaces between words."""
    return any(first <= ord(character) <= last for first, last in _UNSEGMENTED_RANGES)


@lru_cache(maxsize=10_000)
def _classify_character(character: str) -> int:
    if is_unsegmented(character):
        return _PAIRS if unicodedata.category(character)[0] in "LMN" else _BETWEEN
    return _WORD if unicodedata.category(character)[0] in "LMN" else _BETWEEN


def _split_into_pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for place in range(min(len(run) - 1, MAX_TERMS)):
        yield run[place : place + 2]
