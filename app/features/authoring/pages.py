"""Pages on which sheets and scenes are written: a form of ten fields, and an editor with checks and revisions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.characters.archives import CharacterArchive, unpack_archive
from app.characters.authored_texts import choose_scene, find_origin, import_card, read_in_worker
from app.characters.scenes import Scene
from app.characters.sheet_checks import SheetFinding
from app.characters.sheet_forms import (
    QUESTIONS,
    RATINGS,
    ExampleLine,
    FormFault,
    SheetForm,
    find_form_faults,
    name_character,
    name_form_field,
    read_sheet_form,
    write_sheet,
)
from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused, Unavailable
from app.domain.values import Name
from app.features.authoring.model import AuthoredChange, AuthoredDraft
from app.features.authoring.routes import read_upload
from app.features.authoring.service import (
    AuthoringService,
    BrokenText,
    BuildPrompt,
    CharacterTrainings,
    KeptFile,
    TextDraft,
    check_draft,
    name_file,
)
from app.features.authoring.store import MOST_DRAFTS
from app.http.viewer.group_pages import MessageLine, build_lines
from app.http.viewer.rendering import FormFields, Renderer, build_link, pick_field, read_fields, redirect
from app.http.viewer.sentences import count_words, tell_text
from app.http.viewer.text_editor import (
    HISTORY,
    Doing,
    Number,
    Publishing,
    RevisionDifference,
    TextEditor,
    TextForm,
    build_difference,
    compare_lines,
    count_findings,
    describe_card,
    read_doing,
    read_form,
)
from app.http.web.api_keys import CallerName, declare_access
from app.http.web.routes import LazyRoute
from app.ports.environment import Workers
from app.toolkit.texts import SHOWN_AT_ALL, run_in_turn

# What a button does, on either page.

_SUFFIXES: Final = ("", "/scenes")
_NAME: Final = TypeAdapter[str](Name)
_NEW_SCENES: Final = """character: {id}
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
    list_languages: Callable[[], Sequence[tuple[str, str]]]
    """Codes and names."""
    find_trainings: Callable[[str], Awaitable[CharacterTrainings]]


@dataclass(frozen=True)
class OpenedText:
    """A file as its author sees it: the draft, or else what is published, or else what to begin with."""

    file: str
    text: str
    published: str
    """Empty where nothing is."""
    revision: int
    draft: AuthoredDraft | None

    @property
    def stamp(self) -> str:
        """What the author has read: the revision and the draft."""
        return f"{self.revision}.{'' if self.draft is None else self.draft.digest}"


def _parse_character(text: str) -> str | None:
    try:
        return _NAME.validate_python(text.strip())
    except ValidationError:
        return None


async def _open_text(pages: AuthorPages, file: str, author: str) -> OpenedText:
    draft = await pages.authoring.find_draft(file, author)
    try:
        in_force = await pages.authoring.read(file)
        published, revision = in_force.text, in_force.revision
    except NotFound:
        published, revision = "", pages.authoring.find_number(file)
    text = published or await _read_last(pages, file, revision) if draft is None else draft.text
    return OpenedText(file, text, published, revision, draft)


async def _read_last(pages: AuthorPages, file: str, withdrawal: int) -> str:
    """What was published before it was taken back, or what a new text begins with."""
    last = (await pages.authoring.get_revision(file, withdrawal - 1)).text if withdrawal > 1 else None
    return last or _begin(file)


def _begin(file: str) -> str:
    character = file.rpartition("/")[2].removesuffix(".yaml")
    if "/" in file:
        return _NEW_SCENES.replace("{id}", character)
    return write_sheet(SheetForm(name=character, who="Who this is, in one sentence without a secret."), character)


@dataclass(frozen=True)
class Outcome:
    """What became of a button: `done` is said on the page that follows; `problem` why nothing is stored."""

    done: Mapping[str, object] | None = None
    problem: str = ""
    status: int = 200


async def _press(pages: AuthorPages, file: str, doing: Doing, form: TextForm, author: str) -> Outcome:
    """Of a button that stores something; a check stores nothing."""
    try:
        return Outcome(await _store(pages, file, doing, form, author))
    except BrokenText:
        return Outcome(problem="Not published: the text has errors. Save it as a draft to go on later.", status=422)
    except RequestRefused as error:
        return Outcome(problem=f"Nothing is stored. {error.detail}", status=error.status)


async def _store(
    pages: AuthorPages, file: str, doing: Doing, form: TextForm, author: str
) -> Mapping[str, object] | None:
    authoring = pages.authoring
    if doing not in {"save", "publish", "discard", "withdraw"}:
        return None
    revision, read = _parse_stamp(form.stamp)
    if doing == "save":
        await authoring.save_draft(file, author, form.text, revision, read)
        return {"done": "draft"}
    if doing == "publish":
        change = AuthoredChange(file=file, text=form.text, based_on=revision)
        return {"saved": (await authoring.publish(change, author, read, form.note)).revision}
    if doing == "discard":
        await authoring.remove_draft(file, author, read)
        return {"done": "discarded"}
    await authoring.save([AuthoredChange(file=file, text=None, based_on=revision)], author, form.note)
    return {"done": "taken-back" if await authoring.has_own(file) else "unpublished"}


def _parse_stamp(stamp: str) -> tuple[int, str]:
    revision, _, read = stamp.partition(".")
    if not (revision.isascii() and revision.isdecimal() and len(revision) < 10):
        raise InvalidRequest("the form does not say which revision was read")
    return int(revision), read


def _tell_done(done: str, saved: int | None) -> str:
    """What the page says first after a button."""
    if saved:
        return f"Revision {saved} is published."
    said = {
        "draft": "Your draft is saved. Choose it on the page Talk to hear it: games and trainings do not have it.",
        "discarded": "Your draft is gone. Below stands what is published.",
        "taken-back": "The published text is taken back. The file in the folder counts again.",
        "unpublished": "The text is unpublished: nobody is served it any more. Publish it to bring it back.",
    }
    return said.get(done, "")


async def _describe_publishing(pages: AuthorPages, opened: OpenedText, *, checks_alone: bool = False) -> Publishing:
    """`checks_alone`: of a check while somebody types, which looks for no runs."""
    character = opened.file.rpartition("/")[2].removesuffix(".yaml")
    trainings = CharacterTrainings() if checks_alone else await pages.find_trainings(character)
    stored, draft = opened.revision, opened.draft
    is_own = pages.authoring.is_written(opened.file)
    published = f"Published: revision {stored}." if is_own else "Published: the file in the folder."
    none_yet = "Unpublished." if stored else "Not published yet."
    return Publishing(
        published=published if opened.published else none_yet,
        draft=None if draft is None else draft.saved_at,
        newer=stored if draft is not None and opened.published and draft.based_on < stored else None,
        talk="" if draft is None or "/" in opened.file else build_link("/view/talk", character=f"draft:{character}"),
        can_withdraw=is_own,
        has_file=is_own and await pages.authoring.has_own(opened.file),
        trainings=trainings.changing,
        pinned=trainings.pinned,
    )


def _draft_of(form: TextForm, scenes: Sequence[str]) -> TextDraft:
    return TextDraft(text=form.text, scene=form.scene if form.scene in scenes else None)


async def _list_drafts(pages: AuthorPages, author: str) -> list[tuple[str, str]]:
    """Titles of the author's drafts, with the paths of their pages."""
    return [
        (draft.name, _KNOWN.replace("{character}", draft.character))
        if draft.is_sheet
        else (f"Scenes of {draft.character}", f"/view/characters/{draft.character}/scenes/edit")
        for draft in await pages.authoring.list_drafts(author)
    ]


def _list_texts(pages: AuthorPages) -> list[tuple[str, str, str, str]]:
    """Id and name of each character, with what counts of its sheet and its scenes. Those that are unpublished come
    last."""
    names = pages.list_names()
    stored = {file.rpartition("/")[2].removesuffix(".yaml") for file in pages.authoring.list_stored()}
    texts = [(character, called, "from file", "from file or none") for character, called in names.items()]
    texts += [(character, character, "unpublished", "none") for character in sorted(stored - set(names))]
    return [
        (
            character,
            called,
            _tell_revision(pages, name_file(character, "")) or sheet,
            _tell_revision(pages, name_file(character, "/scenes")) or scenes,
        )
        for character, called, sheet, scenes in texts
    ]


def _tell_revision(pages: AuthorPages, file: str) -> str:
    """Empty where no revision counts."""
    return f"revision {pages.authoring.find_number(file)}" if pages.authoring.is_written(file) else ""


# The editor: sheets and scenes as YAML.

_Short = Annotated[str, Query(max_length=64)]


def create_author_pages_router(pages: AuthorPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)
    for suffix in _SUFFIXES:
        _add_editor(router, pages, renderer, suffix)
    _add_form_pages(router, pages, renderer, partial(_render_sheet, pages, renderer))
    declare_access(router.routes, "author", "closed")
    return router


def _add_editor(router: APIRouter, pages: AuthorPages, renderer: Renderer, suffix: str) -> None:
    path = f"/view/characters/{{character}}{suffix}/edit"

    @router.get(path)
    async def edit(
        request: Request,
        character: str,
        author: CallerName,
        revision: Number = None,
        scene: _Short = "",
        saved: Number = None,
        done: _Short = "",
    ) -> Response:
        name = _parse_character(character)
        if name is None:
            return renderer.render_missing(request, "character", character, "/view/characters", "Show every character.")
        opened = await _open_text(pages, name_file(name, suffix), author)
        text, notice = opened.text, _tell_done(done, saved)
        if revision is not None:
            text = (await pages.authoring.get_revision(opened.file, revision)).text or text
            notice = f"This is the text of revision {revision}. Publish it to go back to it."
        shown = _Shown(name, suffix, opened, TextForm(text, opened.stamp, scene=scene))
        editor = await _build_editor(pages, shown)
        difference = await _compare(pages, opened.file, opened.revision if revision is None else revision)
        editor = replace(editor, saved=notice, difference=difference)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data)

    @router.post(path)
    async def write(request: Request, character: str, author: CallerName) -> Response:
        name = _parse_character(character)
        if name is None:
            return renderer.render_missing(request, "character", character, "/view/characters", "Show every character.")
        doing, form = await read_form(request)
        opened = await _open_text(pages, name_file(name, suffix), author)
        if doing == "form" and not suffix:
            read, why = await _read_form_of(pages.workers, name, form.text)
            if read is not None:
                return await _render_form(request, pages, renderer, opened, read, form.stamp)
            outcome = Outcome(problem=f"No form: {why}", status=422)
        else:
            outcome = await _press(pages, opened.file, doing, form, author)
        if outcome.done is not None:
            return redirect(request, path.replace("{character}", name), **outcome.done)
        shown = _Shown(name, suffix, opened, form, checks_alone=doing == "check")
        editor = replace(await _build_editor(pages, shown), problem=outcome.problem)
        return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data, outcome.status)


async def _compare(pages: AuthorPages, file: str, revision: int) -> RevisionDifference | None:
    """None where it or the one before it is the folder's own."""
    if revision < 2:
        return None
    now, before = [await pages.authoring.get_revision(file, number) for number in (revision, revision - 1)]
    if now.text is None or before.text is None:
        return None
    return await build_difference((now.revision, now.text), (before.revision, before.text))


@dataclass(frozen=True)
class _Shown:
    """What the editor shows: a text of a character, and what was typed."""

    character: str
    suffix: str
    opened: OpenedText
    form: TextForm
    checks_alone: bool = False


async def _render_sheet(
    pages: AuthorPages, renderer: Renderer, request: Request, opened: OpenedText, form: TextForm
) -> Response:
    """The sheet that a form has written, which is not saved yet."""
    shown = _Shown(opened.file.removesuffix(".yaml"), "", opened, form)
    editor = await _build_editor(pages, shown)
    return renderer.render(request, "text_editor.html", {"editor": editor}, editor.data)


async def _build_editor(pages: AuthorPages, shown: _Shown) -> TextEditor:
    character, suffix, opened, form = shown.character, shown.suffix, shown.opened, shown.form
    scenes = await _list_scene_ids(pages, character, form.text if suffix else None)
    checked = await check_draft(pages.authoring, pages.build_prompt, opened.file, _draft_of(form, scenes))
    exists = character in pages.list_names()
    other = ("Sheet", "/edit") if suffix else ("Scenes", "/scenes/edit")
    return TextEditor(
        kind="scenes" if suffix else "sheet",
        title=f"Scenes of {character}" if suffix else character,
        path=f"/view/characters/{character}{suffix}/edit",
        back=(character, f"/view/characters/{character}") if exists else ("Write characters", "/view/author"),
        links=((other[0], f"/view/characters/{character}{other[1]}"),),
        form=form,
        publishing=await _describe_publishing(pages, opened, checks_alone=shown.checks_alone),
        findings=checked.findings,
        prompt=build_lines(checked.prompt, SHOWN_AT_ALL),
        no_prompt=checked.no_prompt,
        scenes=scenes,
        changed=await run_in_turn("authors", compare_lines, opened.published, form.text),
        is_new=not opened.published,
        history=await pages.authoring.list_revisions(opened.file, HISTORY),
        no_form="" if suffix else (await _read_form_of(pages.workers, character, form.text))[1],
        import_id="" if suffix else character,
        imported=None if suffix else describe_card(await find_origin(pages.workers, form.text)),
    )


async def _list_scene_ids(pages: AuthorPages, character: str, text: str | None) -> Sequence[str]:
    """Those of a text of scenes, or all in which the character is asked."""
    if text is None:
        return [scene.id for scene in pages.list_scenes(character)]
    try:
        return (await choose_scene(pages.workers, "scenes", text, None)).scenes
    except GatewayError:
        return []


# The form of ten fields.

_NEW: Final = "/view/author"
_KNOWN: Final = "/view/characters/{character}/form"
_MAX_FORM: Final = 1024 * 1024
"""Bytes: the fields may be encoded as %XX for the most part."""
_PLAIN: Final = ("name", "who", "voice", "wants", "knows", "must_not_know", "limits", "language", "rating")


@dataclass(frozen=True)
class BroughtFile:
    """What became of a member of a ZIP file. `path` leads to the draft, and by `draft` it is published with others;
    both are empty where no draft is kept, and `why` says why."""

    name: str
    path: str = ""
    draft: str = ""
    why: str = ""


RenderSheet = Callable[[Request, OpenedText, TextForm], Awaitable[Response]]
"""The second tab."""


@dataclass(frozen=True)
class FormPage:
    """`path` is where the form is sent. `findings` are those of the sheet that it writes; None before a check. A page
    of a new character has `drop`, a list of drafts and all texts; `publishing` is None on it."""

    title: str
    path: str
    back: tuple[str, str]
    form: SheetForm
    stamp: str
    languages: Sequence[tuple[str, str]]
    links: tuple[tuple[str, str], ...] = ()
    publishing: Publishing | None = None
    faults: Sequence[FormFault] = ()
    findings: Sequence[SheetFinding] | None = None
    prompt: tuple[MessageLine, ...] = ()
    no_prompt: str = ""
    problem: str = ""
    saved: str = ""
    drop: bool = False
    brought: Sequence[BroughtFile] = ()
    drafts: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[str, str, str, str]] = ()
    ratings: Sequence[str] = RATINGS

    @property
    def count(self) -> str:
        return count_findings(self.findings or ())

    @property
    def says(self) -> str:
        if self.publishing is None:
            return "Ten fields make a character. Name and who are enough to begin."
        return tell_text(self.publishing.draft, self.publishing.published)

    @property
    def labelled_findings(self) -> Sequence[tuple[SheetFinding, str]]:
        """The findings, each with the label of its field; empty where the form has none for it."""
        return [(one, name_form_field(one.field)) for one in self.findings or ()]

    @property
    def data(self) -> dict[str, object]:
        """The twin of the page."""
        characters = [{"id": name, "sheet": sheet, "scenes": scenes} for name, _, sheet, scenes in self.rows]
        return {
            "form": self.form,
            "revision": self.stamp,
            "faults": {one.field: one.message for one in self.faults},
            "findings": self.findings,
            "prompt": self.prompt,
            "publishing": self.publishing,
            "brought": self.brought,
            "problem": self.problem,
            "drafts": [title for title, _ in self.drafts],
            "characters": characters,
        }


def _add_form_pages(router: APIRouter, pages: AuthorPages, renderer: Renderer, render_sheet: RenderSheet) -> None:
    _add_new_pages(router, pages, renderer, render_sheet)
    _add_import_pages(router, pages, renderer)
    _add_known_pages(router, pages, renderer, render_sheet)


def _add_new_pages(router: APIRouter, pages: AuthorPages, renderer: Renderer, render_sheet: RenderSheet) -> None:
    @router.get(_NEW)
    async def begin(request: Request, author: CallerName, published: Number = None) -> Response:
        page = await _build_new(pages, author, SheetForm(), ())
        notice = f"Published: {count_words(published, 'text')}." if published else ""
        return _render(request, renderer, replace(page, saved=notice))

    @router.post(_NEW)
    async def begin_with(request: Request, author: CallerName) -> Response:
        doing, form, _ = await _read(request)
        character = name_character(form)
        faults = find_form_faults(form)
        if not faults and await _is_taken(pages, character, author):
            faults = (FormFault("name", f"is taken: there is a character {character} already"),)
        if faults or doing not in {"save", "sheet"}:
            page = await _build_new(pages, author, form, faults)
            page = page if faults else await _add_check(pages, page, character)
            return _render(request, renderer, page, 422 if faults else 200)
        opened = await _open_text(pages, name_file(character, ""), author)
        text = TextForm(write_sheet(form, character), opened.stamp)
        if doing == "sheet":
            return await render_sheet(request, opened, text)
        outcome = await _press(pages, opened.file, doing, text, author)
        return redirect(request, _KNOWN.replace("{character}", character), **(outcome.done or {}))


def _add_known_pages(router: APIRouter, pages: AuthorPages, renderer: Renderer, render_sheet: RenderSheet) -> None:
    @router.get(_KNOWN)
    async def show(
        request: Request,
        character: str,
        author: CallerName,
        saved: Number = None,
        done: Annotated[str, Query(max_length=64)] = "",
    ) -> Response:
        name = _parse_character(character)
        opened = None if name is None else await _open_text(pages, name_file(name, ""), author)
        form = None if opened is None or name is None else (await _read_form_of(pages.workers, name, opened.text))[0]
        if form is None and opened is not None and (opened.published or opened.draft):
            return redirect(request, f"/view/characters/{character}/edit")
        if opened is None or form is None:
            return renderer.render_missing(request, "form", character, "/view/characters", "Show every character.")
        return await _render_form(request, pages, renderer, opened, form, opened.stamp, _tell_done(done, saved))

    @router.post(_KNOWN)
    async def write(request: Request, character: str, author: CallerName) -> Response:
        name = _parse_character(character)
        if name is None:
            return renderer.render_missing(request, "character", character, "/view/characters", "Show every character.")
        doing, form, stamp = await _read(request)
        opened, faults = await _open_text(pages, name_file(name, ""), author), find_form_faults(form)
        text = TextForm("" if faults else write_sheet(form, name), stamp)
        if doing == "sheet" and not faults:
            return await render_sheet(request, opened, text)
        outcome = Outcome() if faults else await _press(pages, opened.file, doing, text, author)
        if outcome.done is not None:
            return redirect(request, _KNOWN.replace("{character}", name), **outcome.done)
        page = await _build_known(pages, opened, form, stamp, faults, checks_alone=doing == "check")
        page = replace(page, problem=outcome.problem)
        return _render(request, renderer, page, 422 if faults else outcome.status)


async def _read_form_of(workers: Workers, character: str, text: str) -> tuple[SheetForm | None, str]:
    """The form that writes this sheet. Without one, why there is none."""
    try:
        read = await read_in_worker(workers, read_sheet_form, text, character, size=len(text))
    except Unavailable as error:
        return None, f"{error.detail}."
    except RequestRefused:
        return None, "the sheet has errors."
    if read is None:
        return None, "the sheet says more than ten fields hold, or has comments."
    return SheetForm.model_validate(read), ""


async def _render_form(
    request: Request,
    pages: AuthorPages,
    renderer: Renderer,
    opened: OpenedText,
    form: SheetForm,
    stamp: str,
    notice: str = "",
) -> Response:
    page = await _build_known(pages, opened, form, stamp, ())
    return _render(request, renderer, replace(page, saved=notice))


def _render(request: Request, renderer: Renderer, page: FormPage, status: int = 200) -> Response:
    return renderer.render(request, "sheet_form.html", {"page": page}, page.data, status)


# ZIP files: what is brought becomes drafts, which are published together.

_ARCHIVE: Final = f"{_NEW}/archive"
_PUBLISHED: Final = f"{_NEW}/publish"
_CARDS: Final = (".json", ".png", ".charx")
_MOST_SENT: Final = 64 * 1024
"""Bytes of a form that names drafts."""


def _add_import_pages(router: APIRouter, pages: AuthorPages, renderer: Renderer) -> None:
    @router.post(_ARCHIVE)
    async def bring(request: Request, author: CallerName) -> Response:
        """The body is the file."""
        try:
            archive = await run_in_turn("authors", unpack_archive, await read_upload(request))
            brought, problem, status = await _bring(pages, archive, author), "", 200
        except RequestRefused as error:
            brought, problem, status = [], f"Nothing is stored. {error.detail}", error.status
        page = await _build_new(pages, author, SheetForm(), ())
        return _render(request, renderer, replace(page, brought=brought, problem=problem), status)

    @router.post(_PUBLISHED)
    async def publish(request: Request, author: CallerName) -> Response:
        sent = (await read_fields(request, _MOST_SENT)).get("draft", ())
        read = {file: digest for digest, _, file in (one.partition(" ") for one in sent)}
        try:
            if not read:
                raise InvalidRequest("the form names no draft", field="draft")
            saved = await pages.authoring.publish_drafts(read, author)
        except RequestRefused as error:
            there = await pages.authoring.list_drafted(author)
            brought = [_describe_kept(KeptFile(file=file, digest=read[file])) for file in there if file in read]
            page = replace(await _build_new(pages, author, SheetForm(), ()), brought=brought)
            problem = f"Nothing is published. {error.detail}"
            return _render(request, renderer, replace(page, problem=problem), error.status)
        return redirect(request, _NEW, published=len(saved))


async def _bring(pages: AuthorPages, archive: CharacterArchive, author: str) -> list[BroughtFile]:
    """Sheets and scenes become drafts, and so do the sheets of cards."""
    texts, sources, left = dict(archive.texts), dict[str, str](), list[BroughtFile]()
    cards = [name for name in archive.others if name.lower().endswith(_CARDS)][:MOST_DRAFTS]
    for name, content in archive.others.items():
        try:
            file, text = await _read_member(pages.workers, name, content, is_read=name in cards)
        except GatewayError as error:
            left.append(BroughtFile(name, why=error.detail.removeprefix("the file: ")))
            continue
        if file in texts:
            left.append(BroughtFile(name, why=f"another file of the ZIP is {file}"))
        else:
            texts[file], sources[file] = text, name
    kept = await pages.authoring.keep_drafts(texts, archive.numbers, author)
    return [*(_describe_kept(one, sources.get(one.file, "")) for one in kept), *left]


async def _read_member(workers: Workers, name: str, content: bytes, *, is_read: bool) -> tuple[str, str]:
    """A card as a file of its id, and its sheet. A refusal for what is no card. `is_read` is false once so many were
    read as there may be drafts: each takes a worker's time."""
    if not name.lower().endswith(_CARDS):
        raise InvalidRequest("neither a sheet, scenes nor a card")
    if not is_read:
        raise InvalidRequest(f"the ZIP has more than {MOST_DRAFTS} cards")
    card = await import_card(workers, content, None)
    if card.kind != "sheet":
        raise InvalidRequest("a lorebook: drop it on the page of a lorebook of a world")
    return name_file(card.id, ""), card.text


def _describe_kept(kept: KeptFile, source: str = "") -> BroughtFile:
    name = source or kept.file
    if not kept.digest:
        return BroughtFile(name, why=kept.why)
    character = kept.file.rpartition("/")[2].removesuffix(".yaml")
    path = f"/view/characters/{character}{'/scenes/edit' if '/' in kept.file else '/form'}"
    return BroughtFile(name, path, f"{kept.digest} {kept.file}")


# The pages of one form.


async def _is_taken(pages: AuthorPages, character: str, author: str) -> bool:
    opened = await _open_text(pages, name_file(character, ""), author)
    return bool(opened.published) or opened.draft is not None


async def _build_new(pages: AuthorPages, author: str, form: SheetForm, faults: Sequence[FormFault]) -> FormPage:
    return FormPage(
        title="New character",
        path=_NEW,
        back=("Characters", "/view/characters"),
        form=form,
        stamp="",
        languages=pages.list_languages(),
        faults=faults,
        drop=True,
        drafts=await _list_drafts(pages, author),
        rows=_list_texts(pages),
    )


async def _build_known(
    pages: AuthorPages,
    opened: OpenedText,
    form: SheetForm,
    stamp: str,
    faults: Sequence[FormFault],
    *,
    checks_alone: bool = False,
) -> FormPage:
    character = opened.file.removesuffix(".yaml")
    page = FormPage(
        title=form.name.strip() or character,
        path=f"/view/characters/{character}/form",
        back=(character, f"/view/characters/{character}")
        if character in pages.list_names()
        else ("Write characters", _NEW),
        links=(("Scenes", f"/view/characters/{character}/scenes/edit"),),
        form=form,
        stamp=stamp,
        languages=pages.list_languages(),
        faults=faults,
        publishing=await _describe_publishing(pages, opened, checks_alone=checks_alone),
    )
    return page if faults else await _add_check(pages, page, character)


async def _add_check(pages: AuthorPages, page: FormPage, character: str) -> FormPage:
    draft = TextDraft(text=write_sheet(page.form, character))
    checked = await check_draft(pages.authoring, pages.build_prompt, name_file(character, ""), draft)
    prompt = build_lines(checked.prompt, SHOWN_AT_ALL)
    return replace(page, findings=checked.findings, prompt=prompt, no_prompt=checked.no_prompt)


async def _read(request: Request) -> tuple[Doing, SheetForm, str]:
    """What button was pressed, the form and its stamp. TooLarge; InvalidRequest for what no browser sends."""
    sent = await read_fields(request, _MAX_FORM)
    form = SheetForm(lines=_read_lines(sent), **{name: pick_field(sent, name) for name in _PLAIN})
    return read_doing(pick_field(sent, "do")), form, pick_field(sent, "stamp")[:64]


def _read_lines(sent: FormFields) -> tuple[ExampleLine, ...]:
    return tuple(
        ExampleLine(player=pick_field(sent, f"lines.{number}.player"), reply=pick_field(sent, f"lines.{number}.reply"))
        for number in range(len(QUESTIONS))
    )
