"""What happens in a game's worlds, who may know of it, and what became of a search for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from app.domain.tasks import Context
from app.domain.values import FiniteNumber, Frozen, Name, Unit, WholeNumber, require_encodable

EventId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
"""Chosen by the game: letters, digits and `. _ : -`."""


def _written_out(value: object) -> object:
    """A number would be taken for seconds since 1970, which no game means."""
    if isinstance(value, datetime) or (isinstance(value, str) and "-" in value[1:]):
        return value
    raise ValueError("Input should be a time in ISO 8601, such as 2031-04-03T09:15:00Z")


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("Input should say its time zone: with Z at the end for UTC, or an offset such as +02:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("Input should be a time in the years 1 to 9999 of UTC") from None


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


GameTime = Annotated[datetime, BeforeValidator(_written_out), AfterValidator(_in_utc)]
"""Of the world, not of the server: ISO 8601 with its zone, kept in UTC. A game maps its calendar onto it."""

Phrase = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(require_encodable)]
Told = Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(require_encodable)]


class Event(Frozen):
    """Something that happened in a world."""

    id: EventId
    time: GameTime
    """Nobody knows of it before."""
    text: Told
    """As it is told in a prompt."""
    kind: Phrase | None = None
    actors: Annotated[tuple[Phrase, ...], Field(max_length=64)] = ()
    location: Phrase | None = None
    visibility: Literal["public"] | Annotated[tuple[Phrase, ...], Field(max_length=256)] = "public"
    """`public`, or those who may know it: ids of characters, and circles (factions, households, places) to which
    characters belong. Nobody is added to the list by being an actor; an empty one is known to nobody."""
    importance: Annotated[WholeNumber, Field(ge=0, le=10)] = 5
    """From 0, nobody would mention it, to 10, nobody speaks of anything else."""
    tags: Annotated[tuple[Phrase, ...], Field(max_length=64)] = ()
    valid_from: GameTime | None = None
    """From when it holds; from `time` where nothing is said."""
    valid_to: GameTime | None = None
    """Until when it holds, that moment excluded: an offer that ends, a gate that closes."""
    supersedes: Annotated[tuple[EventId, ...], BeforeValidator(_listed), Field(max_length=64)] = ()
    """Events that whoever knows of this one takes to be out of date. A single id may stand without a list."""
    leak_terms: Annotated[tuple[Phrase, ...], Field(max_length=64)] = ()
    """Any of these in a reply shows knowledge of it; for those who cannot know it."""

    @property
    def searched(self) -> str:
        """All that it is found by."""
        return "\n".join((self.text, self.kind or "", self.location or "", *self.actors, *self.tags))


class World(Frozen):
    """One state line of a game. A branch shares its parent's past up to `branched_at`, that moment included."""

    name: Name
    parent: Name | None = None
    branched_at: GameTime | None = None
    events: int = 0
    """Told to this world itself, withdrawn ones included."""
    newest: GameTime | None = None
    """The latest time of an event, of its past too; null before the first."""
    created_at: datetime


class EventsTold(Frozen):
    """`known` were told before, word for word, and are left as they are."""

    new: int
    known: int


Way = Literal["text", "newest", "important"]
"""How a search came upon an event."""

Obstacle = Literal["future", "not_visible", "superseded", "not_yet_valid", "no_longer_valid"]
"""Why a character is not told of an event."""


@dataclass(frozen=True)
class EventSearch:
    """`as_of`: game time, or the newest event's when None. `names`: those under which visibility may mean whoever
    asks. `terms`: as `app.domain.search_terms` makes them, distinct."""

    world: str
    as_of: datetime | None
    names: frozenset[str]
    terms: tuple[str, ...]
    most: int = 64
    """Events per way of finding them."""


@dataclass(frozen=True)
class Found:
    event: Event
    ways: frozenset[Way]


@dataclass(frozen=True)
class Hidden:
    """`by` is the event that supersedes it."""

    event: Event
    reason: Obstacle
    by: str | None = None


@dataclass(frozen=True)
class Findings:
    """Candidates for a prompt, and what was near but is held back. `frequencies`: by term of the search, in how many of
    the `events` it occurs that could be told; counted up to `common`, and a term that is as common found nothing unless
    all are."""

    as_of: datetime | None
    """None in a world without events."""
    visible: tuple[Found, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    frequencies: Mapping[str, int] | None = None
    events: int = 0
    common: int | None = None


class Ranked(Frozen):
    """An event that could be told, with the parts of its score, each scaled to [0, 1] over all that were found."""

    event: Event
    recency: Unit
    importance: Unit
    relevance: Unit
    score: FiniteNumber
    """Their sum: Park et al. 2023 (arXiv 2304.03442), section 4.1, with all weights 1."""
    ways: tuple[Way, ...]
    tokens: int
    """About as many as it takes in a prompt."""
    told: bool
    """Whether it is in the prompt; else the budget was used up."""


class Recalled(Frozen):
    """An entry of a lorebook that came up."""

    lorebook: str
    entry: str
    because: str
    """The key that was found, `constant`, or what else called it up, in words."""
    tokens: int
    told: bool


class HiddenEvent(Frozen):
    event: Event
    reason: Obstacle
    by: str | None = None
    """The event that supersedes it."""


class Explained(Frozen):
    """What a prompt would hold, and why: best first."""

    as_of: datetime | None
    events: tuple[Ranked, ...] = ()
    lore: tuple[Recalled, ...] = ()
    hidden: tuple[HiddenEvent, ...] = ()
    budget_tokens: int
    context: Context
