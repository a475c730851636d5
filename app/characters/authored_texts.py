"""Texts of authors are read in workers, as texts of models are: sheets, scenes, cards, lorebooks and events over HTTP.

Texts exist that keep a reader busy for minutes, and a thread cannot be ended. So a function that reads one runs in a
worker with a limit that grows with the text, and hands back what is small or plain: findings, a prompt, or JSON that
needs no more than to be validated. What it refuses, and what it breaks on, is the text's fault and comes back as a
refusal.
"""

import base64
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from app.characters.cards.fields import ImportReport
from app.characters.cards.files import read_bytes
from app.characters.cards.formats import is_foreign_book
from app.characters.cards.lorebooks import read_lorebook, require_few_entries
from app.characters.cards.sheets import ORIGINAL, SheetNaming, dump_sheet, import_document, import_file
from app.characters.loading import parse_model, parse_yaml
from app.characters.lorebooks import prepare_books, recall_from, refuse_unusable
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.characters.sheet_checks import (
    SheetCheckContext,
    SheetFinding,
    build_source,
    check_scenes,
    check_sources,
    outline_scenes,
    parse_findable,
    parse_with_numbers,
)
from app.domain.authored_files import SCENE_FILES
from app.domain.errors import InvalidRequest, RequestRefused, TooLarge, Unavailable, WorkerFailed, WorkExceeded
from app.domain.faults import explain_faults
from app.domain.tasks import Limits
from app.domain.values import FiniteJson, Frozen, estimate_tokens
from app.domain.worlds import Event, Lorebook
from app.ports.environment import Workers
from app.toolkit.texts import run_in_turn

log = logging.getLogger(__name__)

# Calls and refusals

_MIB: Final = 1024 * 1024
_SECONDS_PER_MIB: Final = 4.0
"""Twice what a parser of YAML needs for the slowest MiB; an ordinary sheet of 10 kB takes 0.02 s."""
_MOST_SECONDS: Final = 60.0


def choose_limits(size: int) -> Limits:
    """For texts of so many characters together."""
    seconds = min(_MOST_SECONDS, 2.0 + _SECONDS_PER_MIB * size / _MIB)
    return Limits(
        cpu_seconds=round(seconds, 1), seconds=round(4 * seconds, 1), memory_mb=1024, output_bytes=16 * _MIB, tries=1
    )


class UnreadableText(InvalidRequest):
    """Reading it exceeds a limit, or breaks its reader."""


_REFUSALS: Final[Mapping[str, type[RequestRefused]]] = {
    kind.__name__: kind for kind in (InvalidRequest, TooLarge, UnreadableText)
}
_MOST_SAID: Final = 2000
"""Characters of a refusal: it may quote the text."""


class _Answer(Frozen):
    """What comes back from a worker. It is validated as a stranger's, as all answers of workers are."""

    result: Any = None
    refusal: Literal["InvalidRequest", "TooLarge", "UnreadableText"] | None = None
    detail: str = ""
    field: str | None = None
    fault: str = ""
    """For the log alone."""


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def reads_authored(function: FunctionT) -> FunctionT:
    """For a function that `read_in_worker` calls: a refusal is data, as its worker goes on."""

    @wraps(function)
    def answer(*arguments: Any) -> JsonValue:
        try:
            return {"result": function(*arguments)}
        except MemoryError:  # of a limit, which the worker tells
            raise
        except RequestRefused as error:
            kind = type(error).__name__ if type(error).__name__ in _REFUSALS else InvalidRequest.__name__
            return {"refusal": kind, "detail": error.detail[:_MOST_SAID], "field": error.field}
        except Exception as error:
            said = f"it cannot be read ({type(error).__name__})"
            return {"refusal": UnreadableText.__name__, "detail": said, "fault": repr(error)[:_MOST_SAID]}

    return cast(FunctionT, answer)


async def read_in_worker(
    workers: Workers, function: Callable[..., JsonValue], *arguments: JsonValue, size: int
) -> JsonValue:
    """What the function, which is marked by `reads_authored`, makes of texts of `size` characters. Raises what it
    refuses; UnreadableText naming the limit that they exceed; Unavailable without a worker."""
    try:
        answer = _Answer.model_validate(await workers.run(function, *arguments, limits=choose_limits(size)))
    except WorkExceeded as error:
        raise UnreadableText(f"reading it needs more than {error.allowed}, the limit for {size:,} characters") from None
    except WorkerFailed as error:
        log.warning("a text of an author could not be read: %s", error.detail)
        raise Unavailable("the text could not be read now: send it again") from error
    except ValidationError:
        raise Unavailable("the text could not be read now: send it again") from None
    if answer.fault:
        log.warning("a text of an author broke its reader: %s", "".join(filter(str.isprintable, answer.fault)))
    if answer.refusal is not None:
        raise _REFUSALS[answer.refusal](answer.detail, field=answer.field)
    return cast(JsonValue, answer.result)


# Sheets and scenes

_FINDINGS: Final = TypeAdapter(tuple[SheetFinding, ...])


async def check_texts(
    workers: Workers, texts: Mapping[str, str], former: Mapping[str, str], context: SheetCheckContext
) -> tuple[SheetFinding, ...]:
    """Of texts that will be in force together, by file, which may refer to one another. `former`: the files of scenes
    that they replace. `context`: what is in force. UnreadableText."""
    size = sum(map(len, (*texts.values(), *former.values())))
    sent = await run_in_turn("authors", json.dumps, {"texts": dict(texts), "former": dict(former)})
    beside = await run_in_turn("authors", context.model_dump_json)
    found = await read_in_worker(workers, find_in_texts, sent, beside, size=size)
    return _FINDINGS.validate_python(found)


def build_finding(file: str, error: RequestRefused, line: int = 0) -> SheetFinding:
    return SheetFinding(file=file, line=line, field=error.field or "", level="error", message=error.detail)


@reads_authored
def find_in_texts(sent: str, context: str) -> JsonValue:
    given = json.loads(sent)
    texts: Mapping[str, str] = given["texts"]
    former: Mapping[str, str] = given["former"]
    sheets = [build_source(Path(file), texts[file]) for file in texts if not file.startswith(SCENE_FILES)]
    files = [file for file in texts if file.startswith(SCENE_FILES)]
    parsed = [parse_findable(Path(file), texts[file], SceneSet) for file in files]
    findings = [finding for one in parsed if isinstance(one, list) for finding in one]
    beside = SheetCheckContext.model_validate_json(context)
    characters = {Path(file).stem for file in texts if not file.startswith(SCENE_FILES)}
    for file, one in zip(files, parsed, strict=True):
        # a sheet that comes along is checked beside its scenes below
        if not isinstance(one, list) and one[1].character not in characters:
            findings += check_scenes(Path(file), one[0], outline_scenes(one[1]), beside)
    if sheets:
        scene_sets = list(beside.scene_sets)
        for file, text in former.items():
            before = parse_findable(Path(file), text, SceneSet)
            if not isinstance(before, list) and (outline := outline_scenes(before[1])) in scene_sets:
                scene_sets.remove(outline)
        scene_sets += [outline_scenes(one[1]) for one in parsed if not isinstance(one, list)]
        beside = beside.model_copy(update={"scene_sets": tuple(scene_sets)})
        findings += check_sources(sheets, beside).findings
    return [finding.model_dump() for finding in findings]


class ChosenScene(Frozen):
    """A scene of a file of scenes, as JSON, and what else the file has."""

    character: str | None
    scenes: tuple[str, ...]
    """The ids of all."""
    scene: str


async def choose_scene(workers: Workers, file: str, text: str, scene: str | None) -> ChosenScene:
    """The scene of that id, or else the first. Raises as `parse_model`."""
    return ChosenScene.model_validate(await read_in_worker(workers, find_scene, file, text, scene, size=len(text)))


@reads_authored
def find_scene(file: str, text: str, scene: str | None) -> JsonValue:
    scene_set = parse_model(text, file, SceneSet)
    chosen = next((one for one in scene_set.scenes if one.id == scene), scene_set.scenes[0])
    ids: list[JsonValue] = [one.id for one in scene_set.scenes]
    return {"character": scene_set.character, "scenes": ids, "scene": chosen.model_dump_json()}


# Cards


class ImportedCard(Frozen):
    """Nothing is stored: `text` is what to check and save. `kind` says what it is."""

    kind: str
    id: str
    text: str
    report: ImportReport


async def import_card(workers: Workers, content: bytes, name: str | None) -> ImportedCard:
    """Raises as `read_bytes` and `import_file`."""
    encoded = await run_in_turn("authors", lambda: base64.b64encode(content).decode("ascii"))
    imported = await read_in_worker(workers, read_card, encoded, name, size=len(content))
    return ImportedCard.model_validate_json(str(imported))


@reads_authored
def read_card(content: str, name: str | None) -> JsonValue:
    brought = import_file(read_bytes(base64.b64decode(content), "the file"), SheetNaming(id=name))
    if isinstance(brought.content, Lorebook):
        text = brought.content.model_dump_json(indent=2, exclude_defaults=True)
        card = ImportedCard(kind="lorebook", id=name or "", text=text, report=brought.report)
    else:
        sheet = brought.content
        card = ImportedCard(kind="sheet", id=sheet.id, text=dump_sheet(sheet), report=brought.report)
    return card.model_dump_json()


class CardOrigin(Frozen):
    """The card that a sheet was imported from, as JSON, and what became of its fields."""

    report: ImportReport
    original: str


async def read_called(workers: Workers, file: str, text: str) -> tuple[str, ...]:
    """What a sheet's character is called: its name, then its aliases. A refusal for a sheet that cannot be read."""
    return _CALLED.validate_python(await read_in_worker(workers, read_identity, text, file, size=len(text)))


_CALLED: Final = TypeAdapter(tuple[str, ...])


@reads_authored
def read_identity(text: str, file: str) -> JsonValue:
    identity = parse_model(text, file, CharacterSheet).identity
    return [identity.name, *identity.aliases]


async def find_origin(workers: Workers, text: str) -> CardOrigin | None:
    """None for a sheet that was not imported, and for a text that cannot be read, or not now."""
    if ORIGINAL not in text:
        return None
    try:
        found = await read_in_worker(workers, read_origin, text, size=len(text))
    except (RequestRefused, Unavailable):
        return None
    return None if found is None else CardOrigin.model_validate(found)


@reads_authored
def read_origin(text: str) -> JsonValue:
    sheet = parse_yaml(text, "the sheet")
    meta = sheet.get("meta") if isinstance(sheet, dict) else None
    extensions = meta.get("extensions") if isinstance(meta, dict) else None
    card = extensions.get(ORIGINAL) if isinstance(extensions, dict) else None
    if not isinstance(card, dict):
        return None
    report = import_document(card, SheetNaming()).report
    return {"report": report.model_dump(mode="json"), "original": json.dumps(card, ensure_ascii=False, indent=1)}


# Lorebooks and events of worlds


class BookFault(Frozen):
    """As FastAPI has them."""

    type: str = "value"
    loc: tuple[str | int, ...]
    msg: str


class ReadBook(Frozen):
    """`faults` is what is wrong with a book of ours."""

    book: str = ""
    """JSON."""
    report: ImportReport | None = None
    """For a lorebook of another tool: which fields were converted, and which are only kept."""
    faults: tuple[BookFault, ...] = ()


async def read_book(workers: Workers, given: str) -> ReadBook:
    """A lorebook of ours or of another tool, in JSON: which one it is, its keys say, as other tools' have some that
    ours lack. InvalidRequest naming the field of one that cannot be used; TooLarge."""
    return ReadBook.model_validate(await read_in_worker(workers, parse_book, given, size=len(given)))


_MOST_FAULTS: Final = 100
_GIVEN: Final = TypeAdapter[dict[str, JsonValue]](dict[str, FiniteJson])


@reads_authored
def parse_book(given: str) -> JsonValue:
    try:
        value = _GIVEN.validate_json(given)
        require_few_entries(value)
        book, report = _read_foreign_book(value) if is_foreign_book(value) else (Lorebook.model_validate(value), None)
    except ValidationError as error:
        faults = explain_faults(error, Lorebook, base=("body",))[:_MOST_FAULTS]
        return cast(JsonValue, {"faults": [{"loc": list(fault.location), "msg": fault.words} for fault in faults]})
    refuse_unusable(book)
    said = None if report is None else report.model_dump(mode="json")
    return {"book": book.model_dump_json(exclude_unset=True), "report": said}


def _read_foreign_book(value: dict[str, JsonValue]) -> tuple[Lorebook, ImportReport]:
    try:
        return read_lorebook(value)
    except InvalidRequest as error:
        field = None if error.field is None else re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", error.field)
        raise InvalidRequest(error.detail, field=field) from error


WorldText = Literal["event", "lorebook"]
_WORLD_MODELS: Final[Mapping[str, type[BaseModel]]] = {"event": Event, "lorebook": Lorebook}


class CheckedWorldText(Frozen):
    """`value` is JSON; None where there are errors."""

    findings: tuple[SheetFinding, ...]
    value: str | None = None


async def check_world_text(workers: Workers, kind: WorldText, name: str, text: str) -> CheckedWorldText:
    """Of the event or lorebook of that name, as YAML. A text that cannot be read, or not now, is a finding: whoever
    wrote it keeps it on the page."""
    try:
        checked = await read_in_worker(workers, find_in_world_text, kind, name, text, size=len(text))
    except UnreadableText as error:
        return CheckedWorldText(findings=(build_finding(name, error),))
    except Unavailable as error:
        return CheckedWorldText(
            findings=(SheetFinding(file=name, line=0, field="", level="error", message=error.detail),)
        )
    return CheckedWorldText.model_validate(checked)


@reads_authored
def find_in_world_text(kind: str, name: str, text: str) -> JsonValue:
    parsed = parse_with_numbers(Path(f"{name}.yaml"), text, _WORLD_MODELS[kind])
    if isinstance(parsed, list):
        return {"findings": [finding.model_dump() for finding in parsed]}
    document, written, notes = parsed
    try:
        if isinstance(written, Lorebook):
            refuse_unusable(written)
        elif isinstance(written, Event) and written.id != name:
            raise InvalidRequest(f"is {written.id!r}, but this is the page of {name!r}", field="id")
    except InvalidRequest as error:
        line = document.find_line(("id",)) if error.field == "id" else 0
        return {"findings": [build_finding(name, error, line).model_dump()]}
    return {"findings": [note.model_dump() for note in notes], "value": written.model_dump_json()}


class RecalledEntryText(Frozen):
    """An entry of a lorebook that comes up for a line, and why."""

    name: str
    because: str
    is_told: bool
    content: str


_RECALLED: Final = TypeAdapter(tuple[RecalledEntryText, ...])


async def recall_from_text(
    workers: Workers, name: str, text: str, line: str, budget_tokens: int
) -> Sequence[RecalledEntryText]:
    """What comes up of the lorebook of that text for the line; nothing of one that cannot be read, or not now."""
    try:
        recalled = await read_in_worker(workers, recall_line, name, text, line, budget_tokens, size=len(text))
    except (RequestRefused, Unavailable):
        return ()
    return _RECALLED.validate_python(recalled)


@reads_authored
def recall_line(name: str, text: str, line: str, budget_tokens: int) -> JsonValue:
    parsed = parse_with_numbers(Path(f"{name}.yaml"), text, Lorebook)
    if isinstance(parsed, list):
        return []
    book = parsed[1]
    refuse_unusable(book)
    recalled = recall_from(prepare_books({name: book}), [line], name, budget_tokens, estimate_tokens)
    return [
        {
            "name": one.entry.name or one.entry.id,
            "because": one.because,
            "is_told": one.told,
            "content": one.entry.content,
        }
        for one in recalled
    ]
