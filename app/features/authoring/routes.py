"""Routes for authors: sheets and scenes with their revisions, checks of drafts, and the whole folder as a ZIP file."""

from typing import Annotated, Final

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.openapi.models import Example
from fastapi.responses import Response
from pydantic import Field

from app.characters.archives import MAX_ARCHIVE_BYTES, read_archive, write_archive
from app.characters.authored_texts import ImportedCard
from app.characters.authored_texts import import_card as read_imported
from app.domain.authored_files import MAX_AUTHORED, MAX_NOTE, ListedRevision
from app.domain.errors import TooLarge
from app.domain.values import Frozen, Name
from app.features.authoring.model import AuthoredChange, AuthoredRevision
from app.features.authoring.service import (
    AuthoringService,
    BrokenText,
    BuildPrompt,
    CheckedText,
    FileInForce,
    SavedText,
    TextDraft,
    check_draft,
    name_file,
)
from app.http.web.api_keys import CallerName, declare_access
from app.http.web.openapi import document_problems
from app.http.web.problems import MAX_ERRORS, FieldProblem, RefusedBody
from app.http.web.routes import JsonRoute
from app.ports.environment import Workers
from app.toolkit.texts import run_in_turn

_CharacterName = Annotated[Name, Path(description="The character's id.", examples=["hob_tarrant"])]
_RevisionNumber = Annotated[int, Path(ge=1, le=2**31, description="The revision's number.", examples=[1])]

_DRAFT: Final = {"draft": Example(summary="A text with an error", value={"text": "meta: {id: mara}\n"})}
_WRITTEN: Final = {
    "first": Example(
        summary="The first revision, which the check refuses", value={"text": "meta: {id: mara}\n", "revision": 0}
    )
}


class WrittenText(Frozen):
    text: Annotated[str, Field(min_length=1, max_length=MAX_AUTHORED)]
    """YAML."""
    revision: Annotated[int, Field(ge=0, le=2**31)]
    """The revision that the author has read, 0 for none. If another one is in force by now, nothing is stored (409)."""
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""
    """What changed and why."""


class RevisionSummary(Frozen):
    revision: int
    author: str
    at: str
    note: str
    digest: str | None
    """Null for a withdrawal."""


class RevisionList(Frozen):
    """Newest first. The first one is in force; without any the folder's own file is."""

    revisions: tuple[RevisionSummary, ...]
    next_before: int | None


class SavedTexts(Frozen):
    saved: tuple[SavedText, ...]
    left_out: tuple[str, ...]
    """Files that are neither sheets nor scenes."""


def create_author_router(authoring: AuthoringService, workers: Workers, build_prompt: BuildPrompt) -> APIRouter:
    router = APIRouter(prefix="/characters", tags=["characters"], route_class=JsonRoute)
    _add_archive_routes(router, authoring)
    _add_import_route(router, workers)
    _add_text_routes(router, authoring, build_prompt, "", "the sheet")
    _add_text_routes(router, authoring, build_prompt, "/scenes", "the character's own scenes")
    declare_access(router.routes, "author", "closed")
    return router


def _add_text_routes(
    router: APIRouter, authoring: AuthoringService, build_prompt: BuildPrompt, suffix: str, what: str
) -> None:
    looks = document_problems(401, 404, 422, 503)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)
    path = f"/{{character}}{suffix}"

    @router.get(f"{path}/text", summary=f"The revision of {what} that is in force", responses=looks)
    async def text(character: _CharacterName) -> FileInForce:
        return await authoring.read(name_file(character, suffix))

    @router.put(path, summary=f"Store a revision of {what}", responses=refusals)
    async def put(
        character: _CharacterName, written: Annotated[WrittenText, Body(openapi_examples=_WRITTEN)], author: CallerName
    ) -> SavedText:
        change = AuthoredChange(file=name_file(character, suffix), text=written.text, based_on=written.revision)
        return (await _save_changes(authoring, [change], author, written.note))[0]

    @router.delete(path, summary=f"Take back {what} of the folder; revisions are kept", responses=looks | refusals)
    async def withdraw(
        character: _CharacterName, author: CallerName, revision: Annotated[int | None, Query(ge=0, le=2**31)] = None
    ) -> SavedText:
        file = name_file(character, suffix)
        based_on = authoring.find_number(file) if revision is None else revision
        change = AuthoredChange(file=file, text=None, based_on=based_on)
        return (await _save_changes(authoring, [change], author, ""))[0]

    @router.post(f"{path}/check", summary=f"Check a draft of {what}, and see its prompt", responses=refusals)
    async def check(
        character: _CharacterName, draft: Annotated[TextDraft, Body(openapi_examples=_DRAFT)]
    ) -> CheckedText:
        return await check_draft(authoring, build_prompt, name_file(character, suffix), draft)

    @router.get(f"{path}/revisions", summary=f"Revisions of {what}", responses=looks)
    async def revisions(
        character: _CharacterName,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[int | None, Query(ge=1, le=2**31)] = None,
    ) -> RevisionList:
        listed = await authoring.list_revisions(name_file(character, suffix), limit, before)
        following = listed[-1].revision if len(listed) == limit and listed[-1].revision > 1 else None
        return RevisionList(revisions=tuple(map(_summarise, listed)), next_before=following)

    @router.get(f"{path}/revisions/{{revision}}", summary=f"One revision of {what}, with its text", responses=looks)
    async def revision(character: _CharacterName, revision: _RevisionNumber) -> AuthoredRevision:
        return await authoring.get_revision(name_file(character, suffix), revision)


def _summarise(one: ListedRevision) -> RevisionSummary:
    return RevisionSummary(
        revision=one.revision, author=one.author, at=one.at.isoformat(), note=one.note, digest=one.digest
    )


def _add_archive_routes(router: APIRouter, authoring: AuthoringService) -> None:
    archive = {"description": "A ZIP file.", "content": {"application/zip": {"schema": {"type": "string"}}}}
    refusals = document_problems(400, 401, 404, 408, 409, 413, 422, 503)

    @router.get(
        "/archive",
        summary="All sheets, scenes and lorebooks in force, as a folder in a ZIP file",
        response_class=Response,
        responses={200: archive, **document_problems(401, 503)},
    )
    async def download() -> Response:
        files = await authoring.read_all()
        texts = {one.file: one.text for one in files}
        numbers = {one.file: one.revision for one in files if one.revision}
        content = await run_in_turn("authors", write_archive, texts, numbers)
        headers = {"Content-Disposition": 'attachment; filename="characters.zip"'}
        return Response(content, media_type="application/zip", headers=headers)

    @router.post(
        "/archive",
        summary="Store the sheets and scenes of a folder in a ZIP file: all or none",
        responses=refusals,
        openapi_extra={"requestBody": {"content": archive["content"], "required": True}},
    )
    async def upload(
        request: Request,
        author: CallerName,
        force: bool = False,
        note: Annotated[str, Query(max_length=MAX_NOTE)] = "",
    ) -> SavedTexts:
        archive = await run_in_turn("authors", read_archive, await read_upload(request))
        changes = [
            AuthoredChange(
                file=file, text=text, based_on=authoring.find_number(file) if force else archive.numbers.get(file, 0)
            )
            for file, text in archive.texts.items()
        ]
        saved = await _save_changes(authoring, changes, author, note)
        return SavedTexts(saved=tuple(saved), left_out=tuple(archive.others))


def _add_import_route(router: APIRouter, workers: Workers) -> None:
    media = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

    @router.post(
        "/import",
        summary="Read a character card or lorebook (JSON, PNG or CHARX) as a sheet; nothing is stored",
        responses=document_problems(400, 401, 408, 413, 422, 503),
        openapi_extra={"requestBody": {"content": media, "required": True}},
    )
    async def import_card(request: Request, id: Name | None = None) -> ImportedCard:  # noqa: A002  # the wire's word
        return await read_imported(workers, await read_upload(request), id)


async def read_upload(request: Request) -> bytes:
    """A file. TooLarge."""
    content = await request.body()
    if len(content) > MAX_ARCHIVE_BYTES:
        raise TooLarge(f"the file is larger than {MAX_ARCHIVE_BYTES} bytes")
    return content


async def _save_changes(
    authoring: AuthoringService, changes: list[AuthoredChange], author: str, note: str
) -> list[SavedText]:
    """A refusal that lists every error of the texts, with file, line and field."""
    try:
        return await authoring.save(changes, author, note)
    except BrokenText as error:
        broken = [finding for finding in error.findings if finding.level == "error"]
        findings = [
            FieldProblem(field=f"{one.file}:{one.line}{f': {one.field}' if one.field else ''}", message=one.message)
            for one in broken[:MAX_ERRORS]
        ]
        raise RefusedBody(422, error.detail, tuple(findings)) from None
