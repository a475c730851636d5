"""Pages on which authors make worlds: plain forms for what is new, and editors of events and lorebooks.

What is new is written in fields, and its id is made from its name. What is there is edited as one YAML text. That form
carries a stamp of the text that was read, so that nobody overwrites what somebody else has saved since.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.characters.authored_texts import check_world_text, recall_from_text
from app.characters.cards.sheets import build_slug
from app.characters.loading import FieldPath, dump_yaml
from app.characters.schema import CharacterSheet
from app.characters.sheet_checks import SheetFinding
from app.domain.access import KeyBounds
from app.domain.authored_files import ListedDraft
from app.domain.errors import InvalidRequest, NotFound, RequestRefused
from app.domain.faults import explain_faults
from app.domain.values import digest_of_model, suggest
from app.domain.worlds import DocumentKind, EarlierText, Event, EventId, Lorebook
from app.features.worlds.pages import NAME, VISIBLE_CHARACTERS, Short, WorldPages, find_world, parse_name, parse_time
from app.features.worlds.service import EventsToAdd, WorldService
from app.http.viewer.rendering import Renderer, pick_field, read_fields, redirect
from app.http.viewer.text_editor import HISTORY, Number, RecalledLine, TextEditor, TextForm, compare_lines, read_form
from app.http.web.api_keys import CallerBounds, CallerName, needs
from app.http.web.routes import LazyRoute
from app.ports.environment import Workers
from app.toolkit.texts import cut_excerpt, escape_invisible, run_in_turn

# Forms for what is new: a world with its first event, an event, a lorebook with its first entry.

_MAX_FORM: Final = 256 * 1024
"""Bytes. Texts of 4,000 characters may be encoded as %XX throughout."""
_MOST_QUOTED: Final = 60
"""Characters of a name that nobody has."""
_WORDS_OF_A_NAME: Final = 5
"""Of what happened, for an event without a name."""
_LATER: Final = timedelta(hours=1)
_USUAL_TIME: Final = "1312-04-03T09:15"
"""Of the first event of a world, until somebody chooses another."""


@dataclass(frozen=True)
class _FormField:
    name: str
    label: str
    hint: str = ""
    looks: Literal["line", "text", "time", "level"] = "line"
    required: bool = False
    most: int = 200


_EVENT_FIELDS: Final = (
    _FormField("text", "What happens", "In a sentence, as somebody in the world would put it.", "text", True, 4000),
    _FormField("time", "When (UTC)", looks="time", required=True),
    _FormField("importance", "Importance", "0: nobody would mention it. 10: everybody talks about it.", "level"),
    _FormField(
        "known_to",
        "Known to",
        "Empty: everybody. Or characters, your drafts, factions and places of sheets, with commas between.",
        most=4000,
    ),
    _FormField("location", "Where"),
    _FormField("event", "Name of the event", "Empty: made from what happens.", most=120),
)
_BOOK_FIELDS: Final = (
    _FormField("book", "Name of the lorebook", required=True, most=120),
    _FormField("description", "What it is about"),
    _FormField("keys", "Words that bring it up", "With commas between, such as salt, brine.", required=True, most=4000),
    _FormField("content", "What characters then know", looks="text", required=True, most=4000),
)

_FIELDS: Final[Mapping[str, tuple[_FormField, ...]]] = {
    "world": (_FormField("world", "Name of the world", required=True, most=120), *_EVENT_FIELDS),
    "event": _EVENT_FIELDS,
    "lorebook": _BOOK_FIELDS,
}
_FIELD_OF: Final[Mapping[str, str]] = {"id": "event", "visibility": "known_to", "name": "book"}
"""Of a form, by the field of an event or a lorebook, where they differ."""
NewKind = Literal["world", "event", "lorebook"]
_FOLDERS: Final[Mapping[NewKind, str]] = {"event": "events", "lorebook": "lorebooks"}
"""Of what a world has, in addresses."""
_ADDED: Final[Mapping[NewKind, str]] = {"world": "event", "event": "event", "lorebook": "lorebook"}
"""What a form adds."""
_LEVELS: Final = tuple(map(str, range(11)))


@dataclass(frozen=True)
class NewText:
    """What a form makes. `content` is None where `problems` say why, by field."""

    world: str
    name: str
    content: Event | Lorebook | None
    problems: Mapping[str, str]


@dataclass(frozen=True)
class Audience:
    """Who may be named as knowing an event. Each kind of name gives the ids that it may mean, ids and circles first,
    then full names, then aliases and first names."""

    kinds: tuple[Mapping[str, frozenset[str]], ...]
    names: frozenset[str]
    """All of them, as they are written."""

    def find(self, name: str) -> str:
        """InvalidRequest for a name that nobody has, or that several have."""
        wanted = name.casefold()
        meant = next((kind[wanted] for kind in self.kinds if wanted in kind), frozenset())
        if len(meant) == 1 or name in meant:
            return name if name in meant else next(iter(meant))
        said = repr(name if len(name) <= _MOST_QUOTED else f"{name[:_MOST_QUOTED]}…")
        if meant:
            raise InvalidRequest(f"{said} may be {' or '.join(sorted(meant))}: write one of these.")
        raise InvalidRequest(f"Nobody is called {said}{suggest(name[:_MOST_QUOTED], self.names) or '.'}")


def build_audience(sheets: Iterable[CharacterSheet], drafts: Iterable[ListedDraft]) -> Audience:
    """Of the served characters and the caller's drafts. Circles are factions, households and places of sheets."""
    sheets = tuple(sheets)
    called = [(sheet.id, (sheet.identity.name, *sheet.identity.aliases)) for sheet in sheets]
    called += [(draft.character, draft.called) for draft in drafts if draft.is_sheet]
    circles = {circle for sheet in sheets for circle in sheet.identity.circles}
    full = [(name, names[0]) for name, names in called if names]
    short = [(name, said) for name, names in called for said in (*names[1:], *(one.split()[0] for one in names[:1]))]
    ids = [(name, name) for name in (*circles, *(name for name, _ in called))]
    names = frozenset(said for _, said in (*ids, *full, *short))
    return Audience((_gather(ids), _gather(full), _gather(short)), names)


def _gather(called: Iterable[tuple[str, str]]) -> Mapping[str, frozenset[str]]:
    """The ids by name."""
    gathered: defaultdict[str, set[str]] = defaultdict(set)
    for name, said in called:
        gathered[said.strip().casefold()].add(name)
    return {said: frozenset(names) for said, names in gathered.items()}


def read_new(kind: NewKind, world: str, sent: Mapping[str, str], audience: Audience) -> NewText:
    """`world` is empty where the form names one. Characters may be called by their names."""
    named = world or (build_slug(sent["world"], "world") if sent["world"] else "")
    name, content, problems = _read_book(sent) if kind == "lorebook" else _read_event(sent, audience)
    if not named:
        problems = {"world": "Write a name.", **problems}
    return NewText(named, name, None if problems else content, problems)


def _read_event(sent: Mapping[str, str], audience: Audience) -> tuple[str, Event | None, dict[str, str]]:
    name = build_slug(sent["event"] or " ".join(sent["text"].split()[:_WORDS_OF_A_NAME]), "event")
    problems = _list_missing(sent, {"text": "Write what happens.", "time": "Choose a time."})
    given: dict[str, object] = {"id": name, "text": sent["text"]}
    given |= {"location": sent["location"]} if sent["location"] else {}
    try:
        given["visibility"] = _read_known_to(sent["known_to"], audience)
    except InvalidRequest as error:
        problems["known_to"] = error.detail
    try:
        given["time"] = parse_time(sent["time"])
    except InvalidRequest as error:
        problems["time"] = escape_invisible(error.detail)
    if sent["importance"]:
        given["importance"] = int(sent["importance"]) if sent["importance"] in _LEVELS else sent["importance"]
    try:
        return name, Event.model_validate(given), problems
    except ValidationError as error:
        return name, None, _explain(error, Event) | problems


def _read_known_to(text: str, audience: Audience) -> object:
    """InvalidRequest for a name that nobody has."""
    names = _split_words(text)
    if not names or names == ["everybody"]:
        return "public"
    return [*dict.fromkeys(map(audience.find, names))]


def _read_book(sent: Mapping[str, str]) -> tuple[str, Lorebook | None, dict[str, str]]:
    name, keys = build_slug(sent["book"], "lorebook") if sent["book"] else "", _split_words(sent["keys"])
    asked = {"book": "Write a name.", "keys": "Write a word.", "content": "Write what they know."}
    problems = _list_missing({**sent, "keys": ", ".join(keys)}, asked)
    if problems:
        return name, None, problems
    entry = {"id": build_slug(keys[0], "entry"), "keys": keys, "content": sent["content"]}
    try:
        book = Lorebook.model_validate({"name": sent["book"], "description": sent["description"], "entries": [entry]})
    except ValidationError as error:
        return name, None, _explain(error, Lorebook)
    return name, book, problems


def _list_missing(sent: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    return {field: words for field, words in asked.items() if not sent[field]}


def _split_words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _explain(error: ValidationError, kind: type[Event] | type[Lorebook]) -> dict[str, str]:
    """By field of the form, as sentences."""
    faults = reversed(explain_faults(error, kind, quotes=False))
    return {_find_field(fault.path): f"{fault.words[:1].upper()}{fault.words[1:]}." for fault in faults}


def _find_field(path: FieldPath) -> str:
    """An entry of a lorebook has its fields in the form too."""
    inner = next((str(step) for step in reversed(path) if step in {"keys", "content"}), str(path[0]))
    return _FIELD_OF.get(inner, inner)


@dataclass(frozen=True)
class _NewPage:
    """A form as it is shown. `there` is the address of what has the id already."""

    kind: NewKind
    world: str
    """Empty where the form names one."""
    sent: Mapping[str, str]
    made: NewText | None = None
    there: str = ""
    problem: str = ""
    is_refused: bool = False
    """Whether what is wrong is said: not while somebody is still writing."""

    @property
    def path(self) -> str:
        return f"/view/worlds/{self.world}/{_FOLDERS[self.kind]}/new" if self.kind in _FOLDERS else "/view/new-world"

    @property
    def fields(self) -> tuple[_FormField, ...]:
        return _FIELDS[self.kind]

    @property
    def problems(self) -> Mapping[str, str]:
        return self.made.problems if self.made is not None and self.is_refused else {}


def _choose_later(newest: datetime) -> str:
    """An hour after the newest event, where the calendar goes on so long."""
    is_last = newest.replace(tzinfo=None) > datetime.max - _LATER
    return (newest if is_last else newest + _LATER).isoformat()[:19]


@dataclass(frozen=True)
class _NewForms:
    """Answers the forms' requests."""

    pages: WorldPages
    renderer: Renderer

    async def begin(self, request: Request, kind: NewKind, world: str = "") -> Response:
        at = _USUAL_TIME
        if world:
            stored = await find_world(self.pages.world_service, world)
            if stored is None:
                return self.renderer.render_missing(request, "world", world, "/view/worlds", "Show every world.")
            at = _USUAL_TIME if stored.newest is None else _choose_later(stored.newest)
        sent = {one.name: "" for one in _FIELDS[kind]} | {"time": at, "importance": "5"}
        return self._render(request, _NewPage(kind, world, sent))

    async def write(self, request: Request, bounds: KeyBounds, author: str, kind: NewKind, world: str = "") -> Response:
        if world and await find_world(self.pages.world_service, world) is None:
            return self.renderer.render_missing(request, "world", world, "/view/worlds", "Show every world.")
        fields = await read_fields(request, _MAX_FORM)
        sent = {one.name: pick_field(fields, one.name).strip() for one in _FIELDS[kind]}
        audience = build_audience(self.pages.list_sheets(), await self.pages.list_drafts())
        made = read_new(kind, world, sent, audience)
        page = _NewPage(kind, world, sent, made)
        page = replace(page, there=await self._find(kind, made, bounds))
        if pick_field(fields, "do") != "save":
            return self._render(request, page)
        try:
            bounds.require_world(made.world or world)
            if made.content is not None and not page.there:
                await self._save(made, made.content, author)
                return redirect(request, f"/view/worlds/{made.world}", **{_ADDED[kind]: made.name})
            problem, status = "Nothing is saved. See below.", 422
        except RequestRefused as error:
            problem, status = f"Nothing is saved. {escape_invisible(error.detail)}", error.status
        return self._render(request, replace(page, problem=problem, is_refused=True), status)

    async def _find(self, kind: NewKind, made: NewText, bounds: KeyBounds) -> str:
        """The address of what has this id already; empty where nothing has, or where the key must not know."""
        worlds, path = self.pages.world_service, f"/view/worlds/{made.world}"
        if not made.world or not bounds.allows_world(made.world):
            return ""
        if kind == "event":
            return f"{path}/events/{made.name}/edit" if await worlds.find_event(made.world, made.name) else ""
        if kind == "lorebook":
            return f"{path}/lorebooks/{made.name}/edit" if made.name in await worlds.list_lorebooks(made.world) else ""
        return path if await find_world(worlds, made.world) is not None else ""

    async def _save(self, made: NewText, content: Event | Lorebook, author: str) -> None:
        worlds = self.pages.world_service
        if isinstance(content, Lorebook):
            await worlds.put_lorebook(made.world, made.name, content, "", author)
        else:
            await worlds.add_events(made.world, EventsToAdd(events=(content,)), author)

    def _render(self, request: Request, page: _NewPage, status: int = 200) -> Response:
        made = page.made
        data = {
            "sent": page.sent,
            "world": None if made is None else made.world,
            "name": None if made is None else made.name,
            "there": page.there,
            "problem": page.problem,
            "problems": page.problems,
        }
        return self.renderer.render(request, "world_new.html", {"page": page}, data, status)


def create_new_world_router(pages: WorldPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view", include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute
    )
    forms = _NewForms(pages, renderer)

    @router.get("/new-world")
    @needs("author", "handler")
    async def begin_world(request: Request) -> Response:
        return await forms.begin(request, "world")

    @router.post("/new-world")
    @needs("author", "handler")
    async def write_world(request: Request, bounds: CallerBounds, author: CallerName) -> Response:
        return await forms.write(request, bounds, author, "world")

    for kind, folder in _FOLDERS.items():
        _add_form(router, forms, kind, f"/worlds/{{world}}/{folder}/new")
    return router


def _add_form(router: APIRouter, forms: _NewForms, kind: NewKind, path: str) -> None:
    @router.get(path)
    @needs("author", "world")
    async def begin(request: Request, world: str) -> Response:
        return await forms.begin(request, kind, world)

    @router.post(path)
    @needs("author", "world")
    async def write(request: Request, world: str, bounds: CallerBounds, author: CallerName) -> Response:
        return await forms.write(request, bounds, author, kind, world)


# Editors of what is there.

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
    name = NAME

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
                content=cut_excerpt(one.content, VISIBLE_CHARACTERS),
            )
            for one in recalled
        )


def create_world_editors_router(world_service: WorldService, workers: Workers, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/worlds", include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute
    )
    kinds: tuple[_WorldTexts, ...] = (EventTexts(world_service), BookTexts(world_service, workers))
    for texts in kinds:
        _add_editor(router, renderer, world_service, workers, texts)

    @router.post("/{world}/memory")
    @needs("author", "world")
    async def set_memory(request: Request, world: str) -> Response:
        if parse_name(world) is None:
            return renderer.render_missing(request, "world", world, "/view/worlds", "Show every world.")
        sent = await read_fields(request, _MAX_FORM)
        kept = pick_field(sent, "kept")
        if kept not in ("true", "false"):  # an empty form must forget nothing
            raise InvalidRequest("wanted is true or false", field="kept")
        await world_service.set_memory(world, kept == "true")
        return redirect(request, f"/view/worlds/{world}")

    return router


def _add_editor(
    router: APIRouter, renderer: Renderer, world_service: WorldService, workers: Workers, texts: _WorldTexts
) -> None:
    path = f"/{{world}}/{texts.folder}/{{name}}/edit"
    build_editor = partial(_build_editor, world_service, workers, texts)

    @router.get(path)
    @needs("author", "world")
    async def edit(
        request: Request, world: str, name: str, line: Short = "", saved: bool = False, earlier: Number = None
    ) -> Response:
        if parse_name(world) is None or _parse_text_name(texts.name, name) is None:
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
        if parse_name(world) is None or _parse_text_name(texts.name, name) is None:
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
        recalled=await texts.recall(name, replace(form, line="") if _has_errors(findings) else form),
        earlier=await _list_earlier(world_service, world, texts.kind, name),
        links=(("Why a character knows", f"/view/worlds/{world}/why"),),
    )


def _has_errors(findings: Sequence[SheetFinding]) -> bool:
    return any(finding.level == "error" for finding in findings)


async def _list_earlier(
    world_service: WorldService, world: str, kind: DocumentKind, name: str
) -> Sequence[EarlierText]:
    with contextlib.suppress(NotFound):  # the first event or lorebook makes the world
        return await world_service.list_earlier(world, kind, name, HISTORY)
    return ()


def _parse_text_name(adapter: TypeAdapter[str], text: str) -> str | None:
    with contextlib.suppress(ValidationError):
        return adapter.validate_python(text)
    return None


def _dump(written: Event | Lorebook) -> str:
    return dump_yaml(written.model_dump(mode="json", exclude_defaults=True))
