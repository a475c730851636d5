"""Pages on which events of a world are corrected, and lorebooks written and tried with a line."""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.characters.lorebooks.activation import recall_from
from app.characters.lorebooks.prepared_books import prepare_books
from app.characters.lorebooks.validation import refuse_unusable
from app.characters.sheet_sources import SheetFinding, parse_findable
from app.characters.yaml_documents import dump_yaml
from app.domain.digests import digest_of_model
from app.domain.errors import InvalidRequest, NotFound, RequestRefused
from app.domain.lorebooks import Lorebook
from app.domain.token_estimate import estimate_tokens
from app.domain.values import Name
from app.domain.worlds import Event, EventId, ListedWriting
from app.http.viewer.forms import redirect
from app.http.viewer.rendering import Renderer
from app.http.viewer.text_editor import (
    HISTORY,
    Number,
    RecalledLine,
    RevisionDifference,
    TextEditor,
    TextForm,
    build_difference,
    compare_lines,
    read_form,
)
from app.http.web.api_keys import CallerName
from app.http.web.lazy_routes import LazyRoute
from app.service.world_requests import EventsToAdd
from app.service.world_service import WorldService
from app.toolkit.display import cut_excerpt, escape_invisible

BUDGET_TOKENS: Final = 600
"""For what comes up, as in a prompt."""
VISIBLE_CHARACTERS: Final = 400
NEW: Final = "new"
"""The stamp of what is not there yet."""
STARTER_EVENT: Final = 'id: {id}\ntime: "1312-04-03T09:15:00Z"\nimportance: 5\ntext: What happened, in a sentence.\n'
STARTER_BOOK: Final = """description: What everybody here has heard of.
entries:
  - id: salt
    keys: [salt, brine]
    content: Salt is dear this year.
"""
_NAME: Final = TypeAdapter[str](Name)
_EVENT: Final = TypeAdapter[str](EventId)

Short = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class WrittenPart:
    """An event or a lorebook of a world as it is in force. `stamp` says which revision of it this is."""

    text: str
    stamp: str
    in_force: str


class WorldTexts(Protocol):
    """What of a world is written as one text."""

    kind: Literal["event", "lorebook"]
    folder: str
    name: TypeAdapter[str]

    async def read(self, world: str, name: str) -> WrittenPart: ...

    def check(self, name: str, text: str) -> list[SheetFinding]: ...

    async def save(self, world: str, name: str, form: TextForm, author: str) -> None:
        """RequestRefused. The text has no errors."""

    async def list_written(self, world: str, name: str, limit: int, before: int | None = None) -> list[ListedWriting]:
        """Newest first, those before the revision `before`. NotFound for what was never there."""

    async def read_written(self, world: str, name: str, revision: int) -> str:
        """The text of a revision. NotFound."""

    def recall(self, name: str, form: TextForm) -> tuple[RecalledLine, ...] | None:
        """What comes up for the form's line."""


class EventTexts(WorldTexts):
    kind = "event"
    folder = "events"
    name = _EVENT

    def __init__(self, world_service: WorldService) -> None:
        self._world_service = world_service

    async def read(self, world: str, name: str) -> WrittenPart:
        found = await self._world_service.find_event(world, name)
        if found is None:
            return WrittenPart(STARTER_EVENT.replace("{id}", name), NEW, "Nothing yet")
        text = _dump(found.event)
        state = "withdrawn; saving brings the event back, and nothing" if found.is_withdrawn else ""
        return WrittenPart(text, str(found.revision), state.capitalize() or f"Revision {found.revision}")

    def check(self, name: str, text: str) -> list[SheetFinding]:
        parsed = parse_findable(Path(f"{name}.yaml"), text, Event)
        if isinstance(parsed, list):
            return parsed
        document, event = parsed
        if event.id == name:
            return []
        message = f"is {event.id!r}, but this is the page of {name!r}"
        return [SheetFinding(file=name, line=document.find_line(("id",)), field="id", level="error", message=message)]

    async def save(self, world: str, name: str, form: TextForm, author: str) -> None:
        parsed = parse_findable(Path(f"{name}.yaml"), form.text, Event)
        if isinstance(parsed, list):
            raise InvalidRequest(parsed[0].message)
        if form.stamp == NEW:
            await self._world_service.add_events(world, EventsToAdd(events=(parsed[1],)), author)
        else:
            await self._world_service.correct(world, name, parsed[1], _read_number(form.stamp), author)

    async def list_written(self, world: str, name: str, limit: int, before: int | None = None) -> list[ListedWriting]:
        return await self._world_service.list_event_revisions(world, name, limit, before)

    async def read_written(self, world: str, name: str, revision: int) -> str:
        return _dump((await self._world_service.get_event_revision(world, name, revision)).event)

    def recall(self, name: str, form: TextForm) -> tuple[RecalledLine, ...] | None:
        return None


class BookTexts(WorldTexts):
    kind = "lorebook"
    folder = "lorebooks"
    name = _NAME

    def __init__(self, world_service: WorldService) -> None:
        self._world_service = world_service

    async def read(self, world: str, name: str) -> WrittenPart:
        try:
            found = (await self._world_service.list_lorebooks(world)).get(name)
        except NotFound:
            found = None
        if found is None:
            return WrittenPart(STARTER_BOOK, NEW, "Nothing yet")
        text = await asyncio.to_thread(_dump, found)
        return WrittenPart(text, digest_of_model(found), "The stored lorebook")

    def check(self, name: str, text: str) -> list[SheetFinding]:
        parsed = parse_findable(Path(f"{name}.yaml"), text, Lorebook)
        if isinstance(parsed, list):
            return parsed
        try:
            refuse_unusable(parsed[1])
        except InvalidRequest as error:
            field = error.field or ""
            return [SheetFinding(file=name, line=0, field=field, level="error", message=error.detail)]
        return []

    async def save(self, world: str, name: str, form: TextForm, author: str) -> None:
        book = self._parse(name, form.text)
        if book is None:
            raise InvalidRequest("the text is no lorebook")
        await self._world_service.put_lorebook(world, name, book, "" if form.stamp == NEW else form.stamp, author)

    async def list_written(self, world: str, name: str, limit: int, before: int | None = None) -> list[ListedWriting]:
        return await self._world_service.list_lorebook_revisions(world, name, limit, before)

    async def read_written(self, world: str, name: str, revision: int) -> str:
        found = await self._world_service.get_lorebook_revision(world, name, revision)
        return await asyncio.to_thread(_dump, found.lorebook)

    def recall(self, name: str, form: TextForm) -> tuple[RecalledLine, ...] | None:
        book = self._parse(name, form.text)
        if book is None or not form.line or self.check(name, form.text):
            return ()
        found = recall_from(prepare_books({name: book}), [form.line], name, BUDGET_TOKENS, estimate_tokens)
        return tuple(
            RecalledLine(
                name=escape_invisible(one.entry.name or one.entry.id),
                because=escape_invisible(one.because),
                is_told=one.told,
                content=cut_excerpt(one.entry.content, VISIBLE_CHARACTERS),
            )
            for one in found
        )

    def _parse(self, name: str, text: str) -> Lorebook | None:
        parsed = parse_findable(Path(f"{name}.yaml"), text, Lorebook)
        return None if isinstance(parsed, list) else parsed[1]


def create_world_author_router(world_service: WorldService, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/worlds", include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute
    )
    kinds = (EventTexts(world_service), BookTexts(world_service))

    @router.get("/{world}/write")
    async def begin(request: Request, world: str, event: Short = "", lorebook: Short = "") -> Response:
        name = _parse_name(_NAME, world)
        if name is None:
            return renderer.render_missing(request, "world", world, "/view/worlds", "Show every world.")
        for texts, given in zip(kinds, (event, lorebook), strict=True):
            if wanted := _parse_name(texts.name, given):
                return redirect(request, f"/view/worlds/{name}/{texts.folder}/{wanted}/edit")
        problem = (
            "An event's id has letters, digits and . _ : -, a lorebook's name small letters."
            if event + lorebook
            else ""
        )
        shown = {"world": name, "problem": problem}
        return renderer.render(request, "world_write.html", shown, shown, 422 if problem else 200)

    for texts in kinds:
        _add_editor(router, renderer, texts)
    return router


def _add_editor(router: APIRouter, renderer: Renderer, texts: WorldTexts) -> None:
    path = f"/{{world}}/{texts.folder}/{{name}}/edit"

    @router.get(path)
    async def edit(
        request: Request, world: str, name: str, line: Short = "", saved: bool = False, revision: Number = None
    ) -> Response:
        if _parse_name(_NAME, world) is None or _parse_name(texts.name, name) is None:
            return renderer.render_missing(request, texts.kind, name, "/view/worlds", "Show every world.")
        now = await texts.read(world, name)
        text, told = now.text, "It is saved." if saved else ""
        if revision is not None:
            text = await texts.read_written(world, name, revision)
            told = f"This is the text of revision {revision}. Save it to go back to it."
        editor = await _build_editor(texts, world, name, TextForm(text, now.stamp, line=line), now)
        difference = await _compare(texts, world, name, revision)
        editor = replace(editor, saved=told, difference=difference)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data)

    @router.post(path)
    async def write(request: Request, world: str, name: str, author: CallerName) -> Response:
        if _parse_name(_NAME, world) is None or _parse_name(texts.name, name) is None:
            return renderer.render_missing(request, texts.kind, name, "/view/worlds", "Show every world.")
        doing, form = await read_form(request)
        problem, status = "", 200
        try:
            if doing == "save":
                if await asyncio.to_thread(texts.check, name, form.text):
                    raise InvalidRequest("The text has errors.")
                await texts.save(world, name, form, author)
                return redirect(request, f"/view/worlds/{world}/{texts.folder}/{name}/edit", saved="true")
        except RequestRefused as error:
            problem, status = f"Nothing is stored. {error.detail}", error.status
        editor = await _build_editor(texts, world, name, form, await texts.read(world, name))
        editor = replace(editor, problem=problem)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data, status)


async def _list_written(texts: WorldTexts, world: str, name: str, before: int | None = None) -> list[ListedWriting]:
    with contextlib.suppress(NotFound):
        return await texts.list_written(world, name, HISTORY, before)
    return []


async def _compare(texts: WorldTexts, world: str, name: str, revision: int | None) -> RevisionDifference | None:
    """Of this revision, or the newest one, with the one before it. None for the first."""
    listed = await _list_written(texts, world, name, None if revision is None else revision + 1)
    if len(listed) < 2:
        return None
    now, before = [(one.revision, await texts.read_written(world, name, one.revision)) for one in listed[:2]]
    return await build_difference(now, before)


async def _build_editor(texts: WorldTexts, world: str, name: str, form: TextForm, now: WrittenPart) -> TextEditor:
    return TextEditor(
        kind=texts.kind,
        title=f"{name} in {world}",
        path=f"/view/worlds/{world}/{texts.folder}/{name}/edit",
        back=(world, f"/view/worlds/{world}"),
        form=form,
        in_force=now.in_force,
        findings=await asyncio.to_thread(texts.check, name, form.text),
        changed=await asyncio.to_thread(compare_lines, now.text, form.text),
        recalled=await asyncio.to_thread(texts.recall, name, form),
        written=await _list_written(texts, world, name),
        links=(("Why a character knows", f"/view/worlds/{world}/why"),),
    )


def _parse_name(adapter: TypeAdapter[str], text: str) -> str | None:
    try:
        return adapter.validate_python(text.strip())
    except ValidationError:
        return None


def _dump(written: Event | Lorebook) -> str:
    return dump_yaml(written.model_dump(mode="json", exclude_defaults=True))


def _read_number(stamp: str) -> int:
    if not stamp.isdecimal():
        raise InvalidRequest("the form does not say which revision was read")
    return int(stamp)
