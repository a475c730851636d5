"""Character sheets as they stand in files, with the positions that findings name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from app.characters.loading import read_text
from app.characters.schema import CharacterSheet
from app.characters.views import build_policy_view
from app.characters.word_matching import normalise_spelling
from app.characters.yaml_documents import BrokenYaml, YamlDocument, parse_document
from app.domain.errors import GatewayError
from app.domain.values import Frozen

Level = Literal["error", "warning"]
FieldPath = tuple[int | str, ...]
MOST_FINDINGS: Final = 50
"""Of a file. Each is looked up in the document, so a hundred thousand of them would take minutes."""
ModelT = TypeVar("ModelT", bound=BaseModel)


class SheetFinding(Frozen):
    """`line` starts at 1. For a whole file `line` is 0 and `field` is empty."""

    file: str
    line: int
    field: str
    level: Level
    message: str


@dataclass(frozen=True)
class SheetSource:
    """A valid sheet with the positions in its file."""

    path: Path
    document: YamlDocument
    sheet: CharacterSheet

    def build_finding(self, level: Level, at: FieldPath, message: str) -> SheetFinding:
        return SheetFinding(
            file=str(self.path),
            line=self.document.find_line(at),
            field=".".join(map(str, at)),
            level=level,
            message=message,
        )

    @cached_property
    def policy_texts(self) -> tuple[tuple[FieldPath, str], ...]:
        """Normalised texts that the policy may see, except secrets."""
        view = build_policy_view(self.sheet)
        lore = enumerate(() if self.sheet.lorebook is None else self.sheet.lorebook.entries)
        told = [(at, text) for at, text in iter_texts(view, ()) if at[0] not in ("secrets", "meta")]
        told += [(("lorebook", "entries", number, "content"), entry.content) for number, entry in lore if entry.enabled]
        return tuple((at, normalise_spelling(text)) for at, text in told)


def read_source(path: Path) -> SheetSource | list[SheetFinding]:
    try:
        text = read_text(path)
    except (GatewayError, OSError) as error:
        return [SheetFinding(file=str(path), line=0, field="", level="error", message=str(error))]
    return build_source(path, text)


def build_source(path: Path, text: str) -> SheetSource | list[SheetFinding]:
    """As `read_source`, of the text that the file has or should have."""
    parsed = parse_findable(path, text, CharacterSheet)
    if isinstance(parsed, list):
        return parsed
    source = SheetSource(path, *parsed)
    if source.sheet.id != path.stem:
        message = f"is {source.sheet.id!r}, but the file name says {path.stem!r}"
        return [source.build_finding("error", ("meta", "id"), message)]
    return source


def parse_findable(path: Path, text: str, model: type[ModelT]) -> tuple[YamlDocument, ModelT] | list[SheetFinding]:
    """The first MOST_FINDINGS faults, with line and field, or the model and where its parts stand."""
    try:
        document = parse_document(text, path.name)
    except BrokenYaml as error:
        message = error.detail.removeprefix(f"{path.name}: ")
        return [SheetFinding(file=str(path), line=error.line or 0, field="", level="error", message=message)]
    try:
        return document, model.model_validate(document.value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        found = [_build_schema_finding(str(path), document, one["loc"], one["msg"]) for one in faults[:MOST_FINDINGS]]
        return cut_findings(found, error.error_count())


def _build_schema_finding(name: str, document: YamlDocument, at: FieldPath, message: str) -> SheetFinding:
    text = message.removeprefix("Value error, ")
    return SheetFinding(
        file=name,
        line=document.find_line(at),
        field=".".join(map(str, at)),
        level="error",
        message=" ".join(text.split()),
    )


def cut_findings(findings: Sequence[SheetFinding], count: int) -> list[SheetFinding]:
    """At most MOST_FINDINGS of a file's `count` findings, errors before warnings; the last one then says how many more
    there are."""
    ranked = sorted(findings, key=lambda one: one.level)
    if count <= MOST_FINDINGS:
        return ranked
    kept = ranked[: MOST_FINDINGS - 1]
    more = {"field": "", "message": f"{count - len(kept)} more, which are not listed"}
    return [*kept, kept[-1].model_copy(update=more)]


def iter_texts(value: JsonValue, at: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from iter_texts(item, (*at, number))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from iter_texts(item, (*at, name))
