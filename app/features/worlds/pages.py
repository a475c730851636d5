"""Pages of worlds: their events and branches, what is retrieved for a character and why, and editors of their texts.

All text is untrusted: games wrote it. An event and a lorebook are edited as one YAML text each. The form carries a
stamp of the text that was read, so that nobody overwrites what somebody else has saved since.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.characters.schema import CharacterCard, CharacterSheet
from app.domain.access import KeyBounds
from app.domain.authored_files import ListedDraft
from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.values import Name, suggest
from app.domain.worlds import (
    DocumentKind,
    Event,
    EventId,
    GameTime,
    HiddenEvent,
    Lorebook,
    LoreEntry,
    RankedEvent,
    RecalledLore,
    RetrievalExplanation,
    SearchWay,
    World,
)
from app.features.worlds.service import (
    ConversationTurn,
    Moment,
    RetrievalQuestion,
    WorldService,
    build_cursor,
    list_worlds_within,
    parse_cursor,
)
from app.http.viewer.group_pages import MessageLine, build_lines, describe_reason
from app.http.viewer.rendering import FilterRoute, Renderer
from app.http.web.api_keys import CallerBounds, needs
from app.toolkit.texts import (
    SHOWN_AT_ALL,
    Excerpt,
    cut_excerpt,
    escape_invisible,
    format_number,
    format_time,
    scale_heat,
)

VISIBLE_CHARACTERS: Final = 400
"""Characters of an event that are shown before folding."""
MAX_NAMES: Final = 12
"""Maximum number of names in a list."""
NAME: Final = TypeAdapter[str](Name)
_EVENT: Final = TypeAdapter[str](EventId)
Short = Annotated[str, Query(max_length=200)]


# Worlds and their events.


@dataclass(frozen=True)
class WorldNode:
    """A world with its branches."""

    world: World
    branches: tuple["WorldNode", ...]


@dataclass(frozen=True)
class _EventLine:
    """One event. `importance` is out of 10; `facts` are its other fields as (name, value)."""

    id: str
    time: str
    hour: str
    kind: str
    text: Excerpt
    known_to: str
    everybody: bool
    importance: int
    heat: int
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EventDay:
    date: str
    lines: tuple[_EventLine, ...]


def build_tree(worlds: Sequence[World]) -> tuple[WorldNode, ...]:
    """The trees of worlds. A world whose parent is not given is a root."""
    names = {world.name for world in worlds}
    below: dict[str | None, list[World]] = {}
    for world in worlds:
        below.setdefault(world.parent if world.parent in names else None, []).append(world)
    return tuple(_build_node(world, below) for world in below.get(None, ()))


def _build_node(world: World, below: Mapping[str | None, Sequence[World]]) -> WorldNode:
    """Recursive; the store limits the depth of branches."""
    return WorldNode(world, tuple(_build_node(branch, below) for branch in below.get(world.name, ())))


def find_family(name: str, worlds: Sequence[World]) -> tuple[WorldNode, ...]:
    """The tree with the world; empty if it has no relatives."""
    return tuple(node for node in build_tree(worlds) if node.branches and _contains_world(node, name))


def _contains_world(node: WorldNode, name: str) -> bool:
    return node.world.name == name or any(_contains_world(branch, name) for branch in node.branches)


def group_by_day(events: Sequence[Event]) -> tuple[EventDay, ...]:
    """Groups events by day, in the given order."""
    lines = map(build_event_line, events)
    return tuple(EventDay(date, tuple(some)) for date, some in groupby(lines, key=lambda line: line.time[:10]))


def build_event_line(event: Event) -> _EventLine:
    time = format_time(event.time)
    return _EventLine(
        id=event.id,
        time=time,
        hour=time[11:],
        kind=escape_invisible(event.kind or ""),
        text=cut_excerpt(event.text, VISIBLE_CHARACTERS),
        known_to=_describe_audience(event.visibility),
        everybody=event.visibility == "public",
        importance=event.importance,
        heat=scale_heat(event.importance / 10),
        facts=tuple((name, escape_invisible(value)) for name, value in _list_facts(event) if value),
    )


def _describe_audience(visibility: str | Sequence[str]) -> str:
    if visibility == "public":
        return "everybody"
    return _join_names(visibility) or "nobody"


def _list_facts(event: Event) -> tuple[tuple[str, str], ...]:
    return (
        ("actors", _join_names(event.actors)),
        ("at", event.location or ""),
        ("tags", _join_names(event.tags)),
        ("holds from", format_time(event.valid_from)),
        ("holds until", format_time(event.valid_to)),
        ("in place of", _join_names(event.supersedes)),
        ("given away by", _join_names(event.leak_terms)),
    )


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return escape_invisible(", ".join(names[:MAX_NAMES])) + (f" and {more} more" if more > 0 else "")


# What is retrieved for a character, and why.

_WAYS: Final[Mapping[SearchWay, str]] = {"text": "words", "newest": "new", "important": "important"}


@dataclass(frozen=True)
class ScorePart:
    """A component of a retrieval score in [0, 1], shown as a bar."""

    name: str
    share: float
    heat: int
    label: str


@dataclass(frozen=True)
class RankedLine:
    line: _EventLine
    parts: tuple[ScorePart, ...]
    score: str
    ways: str
    tokens: int
    told: bool


@dataclass(frozen=True)
class LoreLine:
    lorebook: str
    entry: str
    because: str
    tokens: int
    told: bool


@dataclass(frozen=True)
class HiddenLine:
    line: _EventLine
    reason: str
    by: str


@dataclass(frozen=True)
class Recall:
    """Retrieved events, best first; `used` of `budget` tokens are taken."""

    as_of: str
    told: tuple[RankedLine, ...]
    left_out: tuple[RankedLine, ...]
    lore: tuple[LoreLine, ...]
    hidden: tuple[HiddenLine, ...]
    used: int
    budget: int


def build_recall(explained: RetrievalExplanation) -> Recall:
    lines = tuple(map(_build_ranked_line, explained.events))
    lore = tuple(map(_build_lore_line, explained.lore))
    return Recall(
        as_of=format_time(explained.as_of),
        told=tuple(line for line in lines if line.told),
        left_out=tuple(line for line in lines if not line.told),
        lore=lore,
        hidden=tuple(map(_build_hidden_line, explained.hidden)),
        used=sum(one.tokens for one in lines if one.told) + sum(one.tokens for one in lore if one.told),
        budget=explained.budget_tokens,
    )


def _build_ranked_line(ranked: RankedEvent) -> RankedLine:
    values = (
        ("recency", ranked.recency),
        ("importance", ranked.importance),
        ("relevance", ranked.relevance),
    )
    return RankedLine(
        line=build_event_line(ranked.event),
        parts=tuple(ScorePart(name, value, scale_heat(value), format_number(value, 2)) for name, value in values),
        score=format_number(ranked.score, 2),
        ways=", ".join(_WAYS[way] for way in ranked.ways),
        tokens=ranked.tokens,
        told=ranked.told,
    )


def _build_lore_line(recalled: RecalledLore) -> LoreLine:
    return LoreLine(
        lorebook=escape_invisible(recalled.lorebook),
        entry=escape_invisible(recalled.entry),
        because=escape_invisible(recalled.because),
        tokens=recalled.tokens,
        told=recalled.told,
    )


def _build_hidden_line(hidden: HiddenEvent) -> HiddenLine:
    return HiddenLine(line=build_event_line(hidden.event), reason=describe_reason(hidden.reason), by=hidden.by or "")


# Pages of worlds.

_PAGE_SIZE: Final = 50
_MAX_WORLDS: Final = 500
"""Maximum number of worlds that are searched for relatives."""
_MAX_ENTRIES: Final = 50
"""Maximum number of entries of a lorebook that are shown."""
_TIME: Final = TypeAdapter[datetime](GameTime)
_Spoken = Annotated[str, Query(max_length=4000)]


@dataclass(frozen=True)
class WorldPages:
    """Data for the pages. `characters` are those with a sheet, for the form; `list_drafts` are the caller's."""

    world_service: WorldService
    characters: Callable[[], Sequence[CharacterCard]]
    list_sheets: Callable[[], Sequence[CharacterSheet]]
    list_drafts: Callable[[], Awaitable[Sequence[ListedDraft]]]


@dataclass(frozen=True)
class _RecallForm:
    """The form's values as sent."""

    character: str = ""
    as_of: str = ""
    q: str = ""


@dataclass(frozen=True)
class _RecallAnswer:
    """`problem` says why there is no recall, `no_prompt` why there is no prompt."""

    status: int = 200
    problem: str = ""
    recall: Recall | None = None
    prompt: tuple[MessageLine, ...] = ()
    no_prompt: str = ""


@dataclass(frozen=True)
class _AddedText:
    """What a form has just made."""

    kind: DocumentKind
    name: str
    line: _EventLine | None = None


@dataclass(frozen=True)
class _LoreEntryView:
    name: str
    called_by: str
    off: bool
    content: Excerpt


@dataclass(frozen=True)
class _LorebookView:
    title: str
    description: Excerpt | None
    count: int
    entries: tuple[_LoreEntryView, ...]
    left_out: int


def create_world_pages_router(pages: WorldPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/worlds", include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute
    )
    world_service, characters = pages.world_service, pages.characters

    async def render_missing(request: Request, world: str, bounds: KeyBounds) -> Response:
        near = suggest(world[:100], [one.name for one in await list_worlds_within(world_service, bounds, _MAX_WORLDS)])
        return renderer.render_missing(request, "world", world, "/view/worlds", "Show every world.", near)

    @router.get("")
    @needs("read", "handler")
    async def worlds(request: Request, bounds: CallerBounds, after: Short = "") -> Response:
        page = await list_worlds_within(world_service, bounds, _PAGE_SIZE, parse_name(after))
        following = page[-1].name if len(page) == _PAGE_SIZE else None
        shown = {"nodes": build_tree(page), "after": parse_name(after), "next": following}
        return renderer.render(request, "worlds.html", shown, {"worlds": page, "next_after": following})

    @router.get("/{world}")
    @needs("read", "world")
    async def one(
        request: Request, world: str, bounds: CallerBounds, before: Short = "", event: Short = "", lorebook: Short = ""
    ) -> Response:
        stored = await find_world(world_service, world)
        if stored is None:
            return await render_missing(request, world, bounds)
        position = parse_cursor(before)
        events = await world_service.list_events(stored.name, _PAGE_SIZE, position)
        books, older = await world_service.list_lorebooks(stored.name), build_cursor(events, _PAGE_SIZE)
        shown = {
            "world": stored,
            "added": await _find_added(world_service, stored.name, event, lorebook if lorebook in books else ""),
            "asked": _RecallForm(),
            "characters": characters(),
            "family": find_family(stored.name, await list_worlds_within(world_service, bounds, _MAX_WORLDS)),
            "days": group_by_day(events),
            "before": position,
            "older": older,
            "books": _build_books(books),
        }
        data = {"world": stored, "events": events, "next_before": older, "lorebooks": books}
        return renderer.render(request, "world.html", shown, data)

    @router.get("/{world}/why")
    @needs("read", "world")
    async def why(
        request: Request,
        world: str,
        bounds: CallerBounds,
        character: Short = "",
        as_of: Short = "",
        q: _Spoken = "",
    ) -> Response:
        stored = await find_world(world_service, world)
        if stored is None:
            return await render_missing(request, world, bounds)
        asked = _RecallForm(character.strip(), as_of.strip(), q)
        answer = await _answer_form(world_service, stored.name, asked, [one.id for one in characters()])
        shown = {"world": stored, "asked": asked, "characters": characters(), "answer": answer}
        data = {"world": stored, "asked": asked, "answer": answer}
        return renderer.render(request, "why.html", shown, data, answer.status)

    return router


async def _find_added(world_service: WorldService, world: str, event: str, lorebook: str) -> _AddedText | None:
    if lorebook:
        return _AddedText("lorebook", lorebook)
    with contextlib.suppress(ValidationError):
        known = await world_service.find_event(world, _EVENT.validate_python(event))
        if known is not None and not known.is_withdrawn:
            return _AddedText("event", known.event.id, build_event_line(known.event))
    return None


async def find_world(world_service: WorldService, world: str) -> World | None:
    name = parse_name(world)
    try:
        return None if name is None else await world_service.get_world(name)
    except NotFound:
        return None


async def _answer_form(
    world_service: WorldService, world: str, asked: _RecallForm, characters: Sequence[str]
) -> _RecallAnswer:
    try:
        at = parse_time(asked.as_of)
        if not asked.character:
            raise InvalidRequest("choose a character")
        character = _require_name(asked.character, characters)
        explained = await world_service.explain(world, RetrievalQuestion(text=asked.q, character=character, as_of=at))
        recall = build_recall(explained)
        if not asked.q.strip():
            return _RecallAnswer(recall=recall, no_prompt="Enter what the player says to see the prompt.")
        moment = Moment(character=character, as_of=at, conversation=(ConversationTurn(role="user", content=asked.q),))
        context = await world_service.build_context(world, moment)
    except GatewayError as error:
        return _RecallAnswer(error.status, escape_invisible(error.detail))
    return _RecallAnswer(recall=recall, prompt=build_lines(context.messages, SHOWN_AT_ALL))


def parse_time(text: str) -> datetime | None:
    """Parses a time with or without a zone (browsers send none). Raises InvalidRequest if it is invalid."""
    if not text:
        return None
    for written in (text, f"{text}Z"):
        with contextlib.suppress(ValidationError):
            return _TIME.validate_python(written)
    raise InvalidRequest(f"invalid time {text!r}; expected a time such as 1312-04-03T09:15:00")


def parse_name(text: str) -> str | None:
    """The name; None if it is invalid."""
    with contextlib.suppress(ValidationError):
        return NAME.validate_python(text)
    return None


def _require_name(text: str, characters: Sequence[str]) -> str:
    name = parse_name(text)
    if name is None:
        raise InvalidRequest(f"there is no character {text!r}{suggest(text, characters)}")
    return name


def _build_books(books: Mapping[str, Lorebook]) -> tuple[tuple[str, _LorebookView], ...]:
    return tuple((name, _build_book(book)) for name, book in books.items())


def _build_book(book: Lorebook) -> _LorebookView:
    return _LorebookView(
        title=book.name,
        description=cut_excerpt(book.description, VISIBLE_CHARACTERS) if book.description else None,
        count=len(book.entries),
        entries=tuple(map(_build_entry, book.entries[:_MAX_ENTRIES])),
        left_out=max(0, len(book.entries) - _MAX_ENTRIES),
    )


def _build_entry(entry: LoreEntry) -> _LoreEntryView:
    return _LoreEntryView(
        name=entry.name or entry.id,
        called_by=_describe_triggers(entry),
        off=not entry.enabled,
        content=cut_excerpt(entry.content, VISIBLE_CHARACTERS),
    )


def _describe_triggers(entry: LoreEntry) -> str:
    if entry.constant:
        return "always"
    keys = ", ".join(entry.keys[:12]) or "nothing"
    more = f" ({entry.logic.replace('_', ' ')} {', '.join(entry.secondary_keys[:12])})" if entry.secondary_keys else ""
    chance = "" if entry.probability == 1 else f", {entry.probability:.0%} of the time"
    return f"by {keys}{more}{chance}"
