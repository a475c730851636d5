"""Pages of worlds: their events and branches, what is retrieved for a character and why, and editors of their texts.

All text is untrusted: games wrote it. An event and a lorebook are edited as one YAML text each. The form carries a
stamp of the text that was read, so that nobody overwrites what somebody else has saved since.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Annotated, Final, Protocol

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.characters.authored_texts import check_world_text, recall_from_text
from app.characters.loading import dump_yaml
from app.characters.schema import CharacterCard
from app.domain.access import KeyBounds
from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused
from app.domain.values import Name, digest_of_model, suggest
from app.domain.worlds import (
    DocumentKind,
    EarlierText,
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
    EventsToAdd,
    Moment,
    RetrievalQuestion,
    WorldService,
    build_cursor,
    list_worlds_within,
    parse_cursor,
)
from app.http.viewer.group_pages import MessageLine, build_lines, describe_reason
from app.http.viewer.rendering import FilterRoute, Renderer, redirect
from app.http.viewer.text_editor import (
    HISTORY,
    Number,
    RecalledLine,
    TextEditor,
    TextForm,
    compare_lines,
    read_form,
)
from app.http.web.api_keys import CallerBounds, CallerName, needs
from app.http.web.routes import LazyRoute
from app.ports.environment import Workers
from app.toolkit.texts import (
    SHOWN_AT_ALL,
    Excerpt,
    cut_excerpt,
    escape_invisible,
    format_number,
    format_time,
    run_in_turn,
    scale_heat,
)

_VISIBLE_CHARACTERS: Final = 400
"""Characters of an event that are shown before folding."""
MAX_NAMES: Final = 12
"""Maximum number of names in a list."""
_NAME: Final = TypeAdapter[str](Name)
_Short = Annotated[str, Query(max_length=200)]


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
        text=cut_excerpt(event.text, _VISIBLE_CHARACTERS),
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
    """Data for the pages. `characters` are those with a sheet, for the form."""

    world_service: WorldService
    characters: Callable[[], Sequence[CharacterCard]]


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
    async def worlds(request: Request, bounds: CallerBounds, after: _Short = "") -> Response:
        page = await list_worlds_within(world_service, bounds, _PAGE_SIZE, _parse_name(after))
        following = page[-1].name if len(page) == _PAGE_SIZE else None
        shown = {"nodes": build_tree(page), "after": _parse_name(after), "next": following}
        return renderer.render(request, "worlds.html", shown, {"worlds": page, "next_after": following})

    @router.get("/{world}")
    @needs("read", "world")
    async def one(request: Request, world: str, bounds: CallerBounds, before: _Short = "") -> Response:
        stored = await _find_world(world_service, world)
        if stored is None:
            return await render_missing(request, world, bounds)
        position = parse_cursor(before)
        events = await world_service.list_events(stored.name, _PAGE_SIZE, position)
        books, older = await world_service.list_lorebooks(stored.name), build_cursor(events, _PAGE_SIZE)
        shown = {
            "world": stored,
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
        character: _Short = "",
        as_of: _Short = "",
        q: _Spoken = "",
    ) -> Response:
        stored = await _find_world(world_service, world)
        if stored is None:
            return await render_missing(request, world, bounds)
        asked = _RecallForm(character.strip(), as_of.strip(), q)
        answer = await _answer_form(world_service, stored.name, asked, [one.id for one in characters()])
        shown = {"world": stored, "asked": asked, "characters": characters(), "answer": answer}
        data = {"world": stored, "asked": asked, "answer": answer}
        return renderer.render(request, "why.html", shown, data, answer.status)

    return router


async def _find_world(world_service: WorldService, world: str) -> World | None:
    name = _parse_name(world)
    try:
        return None if name is None else await world_service.get_world(name)
    except NotFound:
        return None


async def _answer_form(
    world_service: WorldService, world: str, asked: _RecallForm, characters: Sequence[str]
) -> _RecallAnswer:
    try:
        at = _parse_time(asked.as_of)
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


def _require_name(text: str, characters: Sequence[str]) -> str:
    name = _parse_name(text)
    if name is None:
        raise InvalidRequest(f"there is no character {text!r}{suggest(text, characters)}")
    return name


def _build_books(books: Mapping[str, Lorebook]) -> tuple[tuple[str, _LorebookView], ...]:
    return tuple((name, _build_book(book)) for name, book in books.items())


def _build_book(book: Lorebook) -> _LorebookView:
    return _LorebookView(
        title=book.name,
        description=cut_excerpt(book.description, _VISIBLE_CHARACTERS) if book.description else None,
        count=len(book.entries),
        entries=tuple(map(_build_entry, book.entries[:_MAX_ENTRIES])),
        left_out=max(0, len(book.entries) - _MAX_ENTRIES),
    )


def _build_entry(entry: LoreEntry) -> _LoreEntryView:
    return _LoreEntryView(
        name=entry.name or entry.id,
        called_by=_describe_triggers(entry),
        off=not entry.enabled,
        content=cut_excerpt(entry.content, _VISIBLE_CHARACTERS),
    )


def _describe_triggers(entry: LoreEntry) -> str:
    if entry.constant:
        return "always"
    keys = ", ".join(entry.keys[:12]) or "nothing"
    more = f" ({entry.logic.replace('_', ' ')} {', '.join(entry.secondary_keys[:12])})" if entry.secondary_keys else ""
    chance = "" if entry.probability == 1 else f", {entry.probability:.0%} of the time"
    return f"by {keys}{more}{chance}"


# Pages on which events are corrected, and lorebooks written and tried with a line.

_BUDGET_TOKENS: Final = 600
"""For what comes up, as in a prompt."""
_NEW: Final = "new"
"""The stamp of what is not there yet."""
_STARTER_EVENT: Final = 'id: {id}\ntime: "1312-04-03T09:15:00Z"\nimportance: 5\ntext: What happened, in a sentence.\n'
_STARTER_BOOK: Final = """description: What everybody here has heard of.
entries:
  - id: salt
    keys: [salt, brine]
    content: Salt is dear this year.
"""
_EVENT: Final = TypeAdapter[str](EventId)


@dataclass(frozen=True)
class _WrittenPart:
    """An event or a lorebook of a world as it is in force. `stamp` says which text of it this is."""

    text: str
    stamp: str
    in_force: str


class _WorldTexts(Protocol):
    """What of a world is written as one text."""

    kind: DocumentKind
    folder: str
    name: TypeAdapter[str]

    async def read(self, world: str, name: str) -> _WrittenPart: ...

    async def save(self, world: str, name: str, value: str, stamp: str, author: str) -> None:
        """RequestRefused. `value` is what was read from the text, as JSON."""

    async def recall(self, name: str, form: TextForm) -> tuple[RecalledLine, ...] | None:
        """What comes up for the form's line, of a text without errors."""


class EventTexts(_WorldTexts):
    kind = "event"
    folder = "events"
    name = _EVENT

    def __init__(self, world_service: WorldService) -> None:
        self._world_service = world_service

    async def read(self, world: str, name: str) -> _WrittenPart:
        known = await self._world_service.find_event(world, name)
        if known is None:
            return _WrittenPart(_STARTER_EVENT.replace("{id}", name), _NEW, "Nothing yet")
        state = "Withdrawn; saving brings the event back, and nothing" if known.is_withdrawn else "The stored event"
        return _WrittenPart(_dump(known.event), digest_of_model(known), state)

    async def save(self, world: str, name: str, value: str, stamp: str, author: str) -> None:
        event = Event.model_validate_json(value)
        if stamp == _NEW:
            await self._world_service.add_events(world, EventsToAdd(events=(event,)), author)
        else:
            await self._world_service.correct(world, name, event, stamp, author)

    async def recall(self, name: str, form: TextForm) -> tuple[RecalledLine, ...] | None:
        return None


class BookTexts(_WorldTexts):
    kind = "lorebook"
    folder = "lorebooks"
    name = _NAME

    def __init__(self, world_service: WorldService, workers: Workers) -> None:
        self._world_service = world_service
        self._workers = workers

    async def read(self, world: str, name: str) -> _WrittenPart:
        try:
            book = (await self._world_service.list_lorebooks(world)).get(name)
        except NotFound:
            book = None
        if book is None:
            return _WrittenPart(_STARTER_BOOK, _NEW, "Nothing yet")
        text = await run_in_turn("authors", _dump, book)
        return _WrittenPart(text, digest_of_model(book), "The stored lorebook")

    async def save(self, world: str, name: str, value: str, stamp: str, author: str) -> None:
        book = await run_in_turn("authors", Lorebook.model_validate_json, value)
        await self._world_service.put_lorebook(world, name, book, "" if stamp == _NEW else stamp, author)

    async def recall(self, name: str, form: TextForm) -> tuple[RecalledLine, ...] | None:
        if not form.line:
            return ()
        recalled = await recall_from_text(self._workers, name, form.text, form.line, _BUDGET_TOKENS)
        return tuple(
            RecalledLine(
                name=escape_invisible(one.name),
                because=escape_invisible(one.because),
                is_told=one.is_told,
                content=cut_excerpt(one.content, _VISIBLE_CHARACTERS),
            )
            for one in recalled
        )


def create_world_author_router(world_service: WorldService, workers: Workers, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/worlds", include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute
    )
    kinds: tuple[_WorldTexts, ...] = (EventTexts(world_service), BookTexts(world_service, workers))

    @router.get("/{world}/write")
    @needs("author", "world")
    async def begin(request: Request, world: str, event: _Short = "", lorebook: _Short = "") -> Response:
        name = _parse_text_name(_NAME, world)
        if name is None:
            return renderer.render_missing(request, "world", world, "/view/worlds", "Show every world.")
        for texts, typed in zip(kinds, (event, lorebook), strict=True):
            if target := _parse_text_name(texts.name, typed):
                return redirect(request, f"/view/worlds/{name}/{texts.folder}/{target}/edit")
        problem = (
            "An event's id has letters, digits and . _ : -, a lorebook's name small letters."
            if event + lorebook
            else ""
        )
        shown = {"world": name, "problem": problem}
        return renderer.render(request, "world_write.html", shown, shown, 422 if problem else 200)

    for texts in kinds:
        _add_editor(router, renderer, world_service, workers, texts)
    return router


def _add_editor(
    router: APIRouter, renderer: Renderer, world_service: WorldService, workers: Workers, texts: _WorldTexts
) -> None:
    path = f"/{{world}}/{texts.folder}/{{name}}/edit"
    build_editor = partial(_build_editor, world_service, workers, texts)

    @router.get(path)
    @needs("author", "world")
    async def edit(
        request: Request, world: str, name: str, line: _Short = "", saved: bool = False, earlier: Number = None
    ) -> Response:
        if _parse_text_name(_NAME, world) is None or _parse_text_name(texts.name, name) is None:
            return renderer.render_missing(request, texts.kind, name, "/view/worlds", "Show every world.")
        now = await texts.read(world, name)
        text, notice = now.text, "It is saved." if saved else ""
        if earlier is not None:
            content = (await world_service.get_earlier(world, texts.kind, name, earlier)).content
            text = await run_in_turn("authors", _dump, content)
            notice = "This is an earlier text. Save it to go back to it."
        editor = await build_editor(world, name, TextForm(text, now.stamp, line=line), now)
        editor = replace(editor, saved=notice)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data)

    @router.post(path)
    @needs("author", "world")
    async def write(request: Request, world: str, name: str, author: CallerName) -> Response:
        if _parse_text_name(_NAME, world) is None or _parse_text_name(texts.name, name) is None:
            return renderer.render_missing(request, texts.kind, name, "/view/worlds", "Show every world.")
        doing, form = await read_form(request)
        problem, status = "", 200
        try:
            if doing == "save":
                checked = await check_world_text(workers, texts.kind, name, form.text)
                if checked.value is None:
                    raise InvalidRequest("The text has errors.")
                await texts.save(world, name, checked.value, form.stamp, author)
                return redirect(request, f"/view/worlds/{world}/{texts.folder}/{name}/edit", saved="true")
        except RequestRefused as error:
            problem, status = f"Nothing is stored. {error.detail}", error.status
        editor = await build_editor(world, name, form, await texts.read(world, name))
        editor = replace(editor, problem=problem)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data, status)


async def _build_editor(
    world_service: WorldService,
    workers: Workers,
    texts: _WorldTexts,
    world: str,
    name: str,
    form: TextForm,
    now: _WrittenPart,
) -> TextEditor:
    findings = (await check_world_text(workers, texts.kind, name, form.text)).findings
    return TextEditor(
        kind=texts.kind,
        title=f"{name} in {world}",
        path=f"/view/worlds/{world}/{texts.folder}/{name}/edit",
        back=(world, f"/view/worlds/{world}"),
        form=form,
        in_force=now.in_force,
        findings=findings,
        changed=await run_in_turn("authors", compare_lines, now.text, form.text),
        recalled=await texts.recall(name, replace(form, line="") if findings else form),
        earlier=await _list_earlier(world_service, world, texts.kind, name),
        links=(("Why a character knows", f"/view/worlds/{world}/why"),),
    )


async def _list_earlier(
    world_service: WorldService, world: str, kind: DocumentKind, name: str
) -> Sequence[EarlierText]:
    with contextlib.suppress(NotFound):  # the first event or lorebook makes the world
        return await world_service.list_earlier(world, kind, name, HISTORY)
    return ()


def _parse_text_name(adapter: TypeAdapter[str], text: str) -> str | None:
    try:
        return adapter.validate_python(text.strip())
    except ValidationError:
        return None


def _dump(written: Event | Lorebook) -> str:
    return dump_yaml(written.model_dump(mode="json", exclude_defaults=True))
