"""Pages on which sheets and scenes are written, with checks, prompts, changes and earlier revisions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.characters.authored_texts import choose_scene
from app.characters.scenes import Scene
from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused
from app.domain.values import Name
from app.features.authoring.model import AuthoredChange
from app.features.authoring.service import AuthoringService, BrokenText, BuildPrompt, TextDraft, check_draft, name_file
from app.http.viewer.group_pages import build_lines
from app.http.viewer.rendering import Renderer, redirect
from app.http.viewer.text_editor import (
    HISTORY,
    Number,
    RevisionDifference,
    TextEditor,
    TextForm,
    build_difference,
    compare_lines,
    read_form,
)
from app.http.web.api_keys import CallerName, declare_access
from app.http.web.routes import LazyRoute
from app.ports.environment import Workers
from app.toolkit.texts import SHOWN_AT_ALL, run_in_turn

_NAME: Final = TypeAdapter[str](Name)
_SUFFIXES: Final = ("", "/scenes")

_Short = Annotated[str, Query(max_length=64)]

_STARTER: Final = """meta:
  schema_version: 1
  id: {id}
  licence: unknown
  genre: fantasy
  world: {id}
  summary: One sentence for listings, without a secret.
identity:
  name: {id}
core:
  traits: []
  principles: []
  goals: []
voice:
  style: How this character talks.
  examples:
    - player: Who are you?
      reply: Who asks?
"""
_STARTER_SCENES: Final = """character: {id}
scenes:
  - id: {id}-arrival
    kind: voice
    split: train
    player: Who are you?
"""


@dataclass(frozen=True)
class AuthorPages:
    """Data for the pages."""

    authoring: AuthoringService
    workers: Workers
    build_prompt: BuildPrompt
    list_names: Callable[[], Mapping[str, str]]
    """What served characters are called, by id."""
    list_scenes: Callable[[str], Sequence[Scene]]


def create_author_pages_router(pages: AuthorPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)

    @router.get("/view/author")
    async def authors(request: Request, id: _Short = "") -> Response:  # noqa: A002  # a field of the form
        name = _parse_character(id)
        if name:
            return redirect(request, f"/view/characters/{name}/edit")
        count = pages.authoring.find_number
        rows = [
            (character, called, count(name_file(character, "")), count(name_file(character, "/scenes")))
            for character, called in pages.list_names().items()
        ]
        problem = "An id has small letters, digits, - and _." if id else ""
        data = [{"id": character, "sheet": sheet, "scenes": scenes} for character, _, sheet, scenes in rows]
        return renderer.render(
            request, "author.html", {"rows": rows, "problem": problem}, {"characters": data}, 422 if problem else 200
        )

    for suffix in _SUFFIXES:
        _add_editor(router, pages, renderer, suffix)
    declare_access(router.routes, "author", "closed")
    return router


def _add_editor(router: APIRouter, pages: AuthorPages, renderer: Renderer, suffix: str) -> None:
    path = f"/view/characters/{{character}}{suffix}/edit"

    @router.get(path)
    async def edit(
        request: Request, character: str, revision: Number = None, scene: _Short = "", saved: Number = None
    ) -> Response:
        name = _parse_character(character)
        if name is None:
            return renderer.render_missing(request, "character", character, "/view/characters", "Show every character.")
        file = name_file(name, suffix)
        text, stamp = await _read(pages, file)
        notice = f"Revision {saved} is in force." if saved else ""
        if revision is not None:
            text = (await pages.authoring.get_revision(file, revision)).text or text
            notice = f"This is the text of revision {revision}. Save it to go back to it."
        editor = await _build_editor(pages, name, suffix, TextForm(text, str(stamp), scene=scene))
        difference = await _compare(pages, file, stamp if revision is None else revision)
        editor = replace(editor, saved=notice, difference=difference)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data)

    @router.post(path)
    async def write(request: Request, character: str, author: CallerName) -> Response:
        name = _parse_character(character)
        if name is None:
            return renderer.render_missing(request, "character", character, "/view/characters", "Show every character.")
        doing, form = await read_form(request)
        try:
            if doing != "check":
                number = await _save(pages, name_file(name, suffix), doing, form, author)
                return redirect(request, path.replace("{character}", name), saved=number)
            problem, status = "", 200
        except BrokenText:
            problem, status = "Nothing is stored: the text has errors.", 422
        except RequestRefused as error:
            problem, status = f"Nothing is stored. {error.detail}", error.status
        editor = replace(await _build_editor(pages, name, suffix, form), problem=problem)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data, status)


async def _compare(pages: AuthorPages, file: str, revision: int) -> RevisionDifference | None:
    """None where it or the one before it is the folder's own."""
    if revision < 2:
        return None
    now, before = [await pages.authoring.get_revision(file, number) for number in (revision, revision - 1)]
    if now.text is None or before.text is None:
        return None
    return await build_difference((now.revision, now.text), (before.revision, before.text))


async def _save(pages: AuthorPages, file: str, doing: Literal["save", "withdraw"], form: TextForm, author: str) -> int:
    if not form.stamp.isdecimal():
        raise InvalidRequest("the form does not say which revision was read")
    text = None if doing == "withdraw" else form.text
    change = AuthoredChange(file=file, text=text, based_on=int(form.stamp))
    return (await pages.authoring.save([change], author, form.note))[0].revision


async def _build_editor(pages: AuthorPages, character: str, suffix: str, form: TextForm) -> TextEditor:
    file = name_file(character, suffix)
    now, stamp = await _read(pages, file)
    scenes = await _list_scene_ids(pages, character, form.text if suffix else None)
    draft = TextDraft(text=form.text, scene=form.scene if form.scene in scenes else None)
    checked = await check_draft(pages.authoring, pages.build_prompt, file, draft)
    exists = character in pages.list_names()
    other = (
        ("Sheet", f"/view/characters/{character}/edit")
        if suffix
        else ("Scenes", f"/view/characters/{character}/scenes/edit")
    )
    home = ("Characters", "/view/author") if not exists else (character, f"/view/characters/{character}")
    return TextEditor(
        kind="scenes" if suffix else "sheet",
        title=f"Scenes of {character}" if suffix else character,
        path=f"/view/characters/{character}{suffix}/edit",
        back=home,
        links=(other,),
        form=form,
        in_force=f"Revision {stamp}" if stamp else "The folder's own file" if exists else "Nothing yet",
        findings=checked.findings,
        prompt=build_lines(checked.prompt, SHOWN_AT_ALL),
        no_prompt=checked.no_prompt,
        scenes=scenes,
        changed=await run_in_turn("authors", compare_lines, now, form.text),
        history=await pages.authoring.list_revisions(file, HISTORY),
        import_id="" if suffix else character,
    )


async def _read(pages: AuthorPages, file: str) -> tuple[str, int]:
    """What is in force, or what to begin with, and the revision that a change is based on."""
    try:
        in_force = await pages.authoring.read(file)
    except NotFound:
        character = file.rpartition("/")[2].removesuffix(".yaml")
        starter = _STARTER_SCENES if "/" in file else _STARTER
        return starter.replace("{id}", character), pages.authoring.find_number(file)
    return in_force.text, in_force.revision


async def _list_scene_ids(pages: AuthorPages, character: str, text: str | None) -> Sequence[str]:
    """Those of a text of scenes, or all in which the character is asked."""
    if text is None:
        return [scene.id for scene in pages.list_scenes(character)]
    try:
        return (await choose_scene(pages.workers, "scenes", text, None)).scenes
    except GatewayError:
        return []


def _parse_character(text: str) -> str | None:
    try:
        return _NAME.validate_python(text.strip())
    except ValidationError:
        return None
