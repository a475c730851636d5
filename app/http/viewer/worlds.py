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
from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.lorebooks import Lorebook, LoreEntry
from app.domain.values import Name
from app.domain.worlds import GameTime, World
from app.http.viewer.cards import Line, lines_of
from app.http.viewer.events import days_of, family_of, tree_of
from app.http.viewer.recall import Recall, recall_of
from app.http.viewer.rendering import Renderer
from app.http.web.event_places import next_before, place_of
from app.service.worlds import Moment, Question, Said, WorldDesk
from app.toolkit.display import SHOWN_AT_ALL, Excerpt, excerpt, visible

PAGE_SIZE: Final = 50
MOST_WORLDS: Final = 500
"""Maximum number of worlds that are searched for relatives."""
MOST_ENTRIES: Final = 50
"""Maximum number of entries of a lorebook that are shown."""
AT_ONCE: Final = 400
"""Characters of an entry that are shown before folding."""

_TIME: Final = TypeAdapter[datetime](GameTime)
_NAME: Final = TypeAdapter[str](Name)

Short = Annotated[str, Query(max_length=200)]
Spoken = Annotated[str, Query(max_length=4000)]


@dataclass(frozen=True)
class WorldPages:
    """Data for the pages. `characters` are those with a sheet, for the form."""

    desk: WorldDesk
    characters: Callable[[], Sequence[CharacterCard]]


@dataclass(frozen=True)
class Asked:
    """The form's values as sent."""

    character: str = ""
    as_of: str = ""
    q: str = ""


@dataclass(frozen=True)
class Answer:
    """`problem` says why there is no recall, `no_prompt` why there is no prompt."""

    status: int = 200
    problem: str = ""
    recall: Recall | None = None
    prompt: tuple[Line, ...] = ()
    no_prompt: str = ""


@dataclass(frozen=True)
class Entry:
    name: str
    called_by: str
    off: bool
    content: Excerpt


@dataclass(frozen=True)
class Book:
    title: str
    description: Excerpt | None
    count: int
    entries: tuple[Entry, ...]
    left_out: int


def worlds_router(pages: WorldPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(prefix="/view/worlds", include_in_schema=False, default_response_class=HTMLResponse)
    desk, characters = pages.desk, pages.characters

    def missing(request: Request, world: str) -> Response:
        shown = {"kind": "world", "wanted": visible(world[:100]), "path": "/view/worlds", "all": "Show every world."}
        return renderer.page(request, "missing.html", shown, status=404)

    @router.get("")
    async def worlds(request: Request, after: Short = "") -> Response:
        page = await desk.worlds(PAGE_SIZE, _name(after))
        following = page[-1].name if len(page) == PAGE_SIZE else None
        return renderer.page(request, "worlds.html", {"nodes": tree_of(page), "after": _name(after), "next": following})

    @router.get("/{world}")
    async def one(request: Request, world: str, before: Short = "") -> Response:
        found = await _found(desk, world)
        if found is None:
            return missing(request, world)
        place = place_of(before)
        events = await desk.events(found.name, PAGE_SIZE, place)
        shown = {
            "world": found,
            "asked": Asked(),
            "characters": characters(),
            "family": family_of(found.name, await desk.worlds(MOST_WORLDS)),
            "days": days_of(events),
            "before": place,
            "older": next_before(events, PAGE_SIZE),
            "books": books_of(await desk.lorebooks(found.name)),
        }
        return renderer.page(request, "world.html", shown)

    @router.get("/{world}/why")
    async def why(request: Request, world: str, character: Short = "", as_of: Short = "", q: Spoken = "") -> Response:
        found = await _found(desk, world)
        if found is None:
            return missing(request, world)
        asked = Asked(visible(character.strip()), visible(as_of.strip()), visible(q))
        answer = await _answered(desk, found.name, asked)
        shown = {"world": found, "asked": asked, "characters": characters(), "answer": answer}
        return renderer.page(request, "why.html", shown, answer.status)

    return router


async def _found(desk: WorldDesk, world: str) -> World | None:
    name = _name(world)
    try:
        return None if name is None else await desk.world(name)
    except NotFound:
        return None


async def _answered(desk: WorldDesk, world: str, asked: Asked) -> Answer:
    try:
        at = _moment(asked.as_of)
        if not asked.character:
            raise InvalidRequest("choose a character")
        character = _word(asked.character)
        explained = await desk.explain(world, Question(text=asked.q, character=character, as_of=at))
        recall = recall_of(explained)
        if not asked.q.strip():
            return Answer(recall=recall, no_prompt="Enter what the player says to see the prompt.")
        moment = Moment(character=character, as_of=at, conversation=(Said(role="user", content=asked.q),))
        context = await desk.context(world, moment)
    except GatewayError as error:
        return Answer(error.status, visible(error.detail))
    return Answer(recall=recall, prompt=lines_of(context.messages, SHOWN_AT_ALL))


def _moment(text: str) -> datetime | None:
    """Parses a time with or without a zone (browsers send none). Raises InvalidRequest if it is invalid."""
    if not text:
        return None
    for written in (text, f"{text}Z"):
        with contextlib.suppress(ValidationError):
            return _TIME.validate_python(written)
    raise InvalidRequest(f"invalid time {text!r}; expected a time such as 1312-04-03T09:15:00")


def _name(text: str) -> str | None:
    """The name; None if it is invalid."""
    with contextlib.suppress(ValidationError):
        return _NAME.validate_python(text)
    return None


def _word(text: str) -> str:
    name = _name(text)
    if name is None:
        raise InvalidRequest(f"there is no character {text!r}")
    return name


def books_of(books: Mapping[str, Lorebook]) -> tuple[tuple[str, Book], ...]:
    return tuple((name, _book(book)) for name, book in books.items())


def _book(book: Lorebook) -> Book:
    return Book(
        title=visible(book.name),
        description=excerpt(book.description, AT_ONCE) if book.description else None,
        count=len(book.entries),
        entries=tuple(map(_entry, book.entries[:MOST_ENTRIES])),
        left_out=max(0, len(book.entries) - MOST_ENTRIES),
    )


def _entry(entry: LoreEntry) -> Entry:
    return Entry(
        name=visible(entry.name or entry.id),
        called_by=_called_by(entry),
        off=not entry.enabled,
        content=excerpt(entry.content, AT_ONCE),
    )


def _called_by(entry: LoreEntry) -> str:
    if entry.constant:
        return "always"
    keys = ", ".join(entry.keys[:12]) or "nothing"
    more = f" ({entry.logic.replace('_', ' ')} {', '.join(entry.secondary_keys[:12])})" if entry.secondary_keys else ""
    chance = "" if entry.probability == 1 else f", {entry.probability:.0%} of the time"
    return visible(f"by {keys}{more}{chance}")
