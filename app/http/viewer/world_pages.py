"""Pages for worlds: events, branches, and what is retrieved for a character and why."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.characters.views import CharacterCard
from app.domain.access import KeyBounds
from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.lorebooks import Lorebook, LoreEntry
from app.domain.suggestions import suggest
from app.domain.values import Name
from app.domain.worlds import GameTime, World
from app.http.viewer.cards import MessageLine, build_lines
from app.http.viewer.events import build_tree, find_family, group_by_day
from app.http.viewer.forms import FilterRoute
from app.http.viewer.recall import Recall, build_recall
from app.http.viewer.rendering import Renderer
from app.http.web.api_keys import CallerBounds
from app.http.web.event_cursors import build_cursor, parse_cursor
from app.service.key_bounds import list_worlds_within
from app.service.world_requests import ConversationTurn, Moment, RetrievalQuestion
from app.service.world_service import WorldService
from app.toolkit.display import SHOWN_AT_ALL, Excerpt, cut_excerpt, escape_invisible

PAGE_SIZE: Final = 50
MAX_WORLDS: Final = 500
"""Maximum number of worlds that are searched for relatives."""
MAX_ENTRIES: Final = 50
"""Maximum number of entries of a lorebook that are shown."""
VISIBLE_CHARACTERS: Final = 400
"""Characters of an entry that are shown before folding."""

_TIME: Final = TypeAdapter[datetime](GameTime)
_NAME: Final = TypeAdapter[str](Name)

Short = Annotated[str, Query(max_length=200)]
Spoken = Annotated[str, Query(max_length=4000)]


@dataclass(frozen=True)
class WorldPages:
    """Data for the pages. `characters` are those with a sheet, for the form."""

    world_service: WorldService
    characters: Callable[[], Sequence[CharacterCard]]


@dataclass(frozen=True)
class RecallForm:
    """The form's values as sent."""

    character: str = ""
    as_of: str = ""
    q: str = ""


@dataclass(frozen=True)
class RecallAnswer:
    """`problem` says why there is no recall, `no_prompt` why there is no prompt."""

    status: int = 200
    problem: str = ""
    recall: Recall | None = None
    prompt: tuple[MessageLine, ...] = ()
    no_prompt: str = ""


@dataclass(frozen=True)
class LoreEntryView:
    name: str
    called_by: str
    off: bool
    content: Excerpt


@dataclass(frozen=True)
class LorebookView:
    title: str
    description: Excerpt | None
    count: int
    entries: tuple[LoreEntryView, ...]
    left_out: int


def create_world_pages_router(pages: WorldPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/worlds", include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute
    )
    world_service, characters = pages.world_service, pages.characters

    async def render_missing(request: Request, world: str, bounds: KeyBounds) -> Response:
        near = suggest(world[:100], [one.name for one in await list_worlds_within(world_service, bounds, MAX_WORLDS)])
        return renderer.render_missing(request, "world", world, "/view/worlds", "Show every world.", near)

    @router.get("")
    async def worlds(request: Request, bounds: CallerBounds, after: Short = "") -> Response:
        page = await list_worlds_within(world_service, bounds, PAGE_SIZE, _parse_name(after))
        following = page[-1].name if len(page) == PAGE_SIZE else None
        shown = {"nodes": build_tree(page), "after": _parse_name(after), "next": following}
        return renderer.render(request, "worlds.html", shown, {"worlds": page, "next_after": following})

    @router.get("/{world}")
    async def one(request: Request, world: str, bounds: CallerBounds, before: Short = "") -> Response:
        found = await _find_world(world_service, world)
        if found is None:
            return await render_missing(request, world, bounds)
        place = parse_cursor(before)
        events = await world_service.list_events(found.name, PAGE_SIZE, place)
        books, older = await world_service.list_lorebooks(found.name), build_cursor(events, PAGE_SIZE)
        shown = {
            "world": found,
            "asked": RecallForm(),
            "characters": characters(),
            "family": find_family(found.name, await list_worlds_within(world_service, bounds, MAX_WORLDS)),
            "days": group_by_day(events),
            "before": place,
            "older": older,
            "books": build_books(books),
        }
        data = {"world": found, "events": events, "next_before": older, "lorebooks": books}
        return renderer.render(request, "world.html", shown, data)

    @router.get("/{world}/why")
    async def why(
        request: Request,
        world: str,
        bounds: CallerBounds,
        character: Short = "",
        as_of: Short = "",
        q: Spoken = "",
    ) -> Response:
        found = await _find_world(world_service, world)
        if found is None:
            return await render_missing(request, world, bounds)
        asked = RecallForm(character.strip(), as_of.strip(), q)
        answer = await _answer_form(world_service, found.name, asked, [one.id for one in characters()])
        shown = {"world": found, "asked": asked, "characters": characters(), "answer": answer}
        data = {"world": found, "asked": asked, "answer": answer}
        return renderer.render(request, "why.html", shown, data, answer.status)

    return router


async def _find_world(world_service: WorldService, world: str) -> World | None:
    name = _parse_name(world)
    try:
        return None if name is None else await world_service.get_world(name)
    except NotFound:
        return None


async def _answer_form(
    world_service: WorldService, world: str, asked: RecallForm, known: Sequence[str]
) -> RecallAnswer:
    try:
        at = _parse_time(asked.as_of)
        if not asked.character:
            raise InvalidRequest("choose a character")
        character = _require_name(asked.character, known)
        explained = await world_service.explain(world, RetrievalQuestion(text=asked.q, character=character, as_of=at))
        recall = build_recall(explained)
        if not asked.q.strip():
            return RecallAnswer(recall=recall, no_prompt="Enter what the player says to see the prompt.")
        moment = Moment(character=character, as_of=at, conversation=(ConversationTurn(role="user", content=asked.q),))
        context = await world_service.build_context(world, moment)
    except GatewayError as error:
        return RecallAnswer(error.status, escape_invisible(error.detail))
    return RecallAnswer(recall=recall, prompt=build_lines(context.messages, SHOWN_AT_ALL))


def _parse_time(text: str) -> datetime | None:
    """Parses a time with or without a zone (browsers send none). Raises InvalidRequest if it is invalid."""
    if not text:
        return None
    for written in (text, f"{text}Z"):
        with contextlib.suppress(ValidationError):
            return _TIME.validate_python(written)
    raise InvalidRequest(f"invalid time {text!r}; expected a time such as 1312-04-03T09:15:00")


def _parse_name(text: str) -> str | None:
    """The name; None if it is invalid."""
    with contextlib.suppress(ValidationError):
        return _NAME.validate_python(text)
    return None


def _require_name(text: str, known: Sequence[str]) -> str:
    name = _parse_name(text)
    if name is None:
        raise InvalidRequest(f"there is no character {text!r}{suggest(text, known)}")
    return name


def build_books(books: Mapping[str, Lorebook]) -> tuple[tuple[str, LorebookView], ...]:
    return tuple((name, _build_book(book)) for name, book in books.items())


def _build_book(book: Lorebook) -> LorebookView:
    return LorebookView(
        title=book.name,
        description=cut_excerpt(book.description, VISIBLE_CHARACTERS) if book.description else None,
        count=len(book.entries),
        entries=tuple(map(_build_entry, book.entries[:MAX_ENTRIES])),
        left_out=max(0, len(book.entries) - MAX_ENTRIES),
    )


def _build_entry(entry: LoreEntry) -> LoreEntryView:
    return LoreEntryView(
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
