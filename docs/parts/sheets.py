"""The characters that ship, and what a character sheet is made of; nothing that only judges may read is quoted."""

from collections.abc import Iterator
from typing import get_args, get_origin

from pydantic.fields import FieldInfo

from app.characters.casting import Cast, cast_all
from app.characters.loading import read_scenes, read_sheets
from app.characters.schema import CharacterSheet, SheetPart, find_audience
from app.cli.sheets import SHIPPED
from app.domain.values import describe_fields
from app.envs.npc_arena.environment import PACKAGED_SCENES
from app.toolkit.templates import find_packaged_folder
from docs.markdown import code, table
from docs.parts.schemas import Fields

HEADS = ("field", "type", "default", "seen by", "meaning")
SEEN_BY = {"policy": "policy", "judge": "judges only", "called_up": "both, where it is called up"}
ELSEWHERE = {"lorebook": "A lorebook, or nothing: with the fields that `PUT /worlds/{world}/lorebooks/{name}` takes."}
"""Blocks whose fields are not those of sheets, and where they are told."""


def characters() -> str:
    """One row for each, by genre and id."""
    sheets = read_sheets(find_packaged_folder(SHIPPED))
    casts = cast_all(sheets, read_scenes(PACKAGED_SCENES))
    ordered = sorted(sheets, key=lambda sheet: (sheet.meta.genre, sheet.id))
    heads = ("character", "genre", "language", "held out", "scenes", "episodes", "secrets", "facts", "probes", "who")
    return table(heads, [_character(sheet, casts) for sheet in ordered])


def _character(sheet: CharacterSheet, casts: tuple[Cast, ...]) -> tuple[str, ...]:
    mine = [cast for cast in casts if cast.sheet.id == sheet.id]
    probes = sheet.probes
    return (
        code(sheet.id),
        sheet.meta.genre,
        sheet.voice.language,
        "yes" if sheet.meta.held_out else "",
        _counted([cast for cast in mine if cast.scene.max_turns == 1]),
        _counted([cast for cast in mine if cast.scene.max_turns > 1]),
        str(len(sheet.secrets)),
        str(len(sheet.lore_facts)),
        str(len(probes.gold_facts) + len(probes.must_not_mention) + len(probes.distractors) + len(probes.exemplars)),
        sheet.meta.summary,
    )


def _counted(casts: list[Cast]) -> str:
    """All, and how many of them play with this character alone."""
    own = sum(cast.scene.id.startswith(f"{cast.sheet.id}-") for cast in casts)
    return f"{len(casts)} ({own} own)"


def sheet_fields() -> str:
    """A table for each block of a sheet, in the order of the schema."""
    return "\n\n".join(_block(name, field) for name, field in CharacterSheet.model_fields.items())


def _block(name: str, field: FieldInfo) -> str:
    if name in ELSEWHERE:
        meaning = " ".join(describe_fields(CharacterSheet)[name].split())
        return f"### {name}\n\n{ELSEWHERE[name]} {meaning} Seen by {SEEN_BY[str(find_audience(field))]}."
    part, many = _part(field)
    if part is None:
        raise TypeError(f"{name}: a sheet consists of parts")
    about = " ".join([*(["A list."] if many else []), part.__dict__.get("__doc__") or ""]).strip()
    rows = _rows(part, "", find_audience(field))
    return "\n\n".join(filter(None, (f"### {name}", about, table(HEADS, rows))))


def _rows(part: type[SheetPart], prefix: str, above: str | None) -> Iterator[tuple[str, ...]]:
    """Fields by their path within the block; whatever stands inside a part for judges is for judges too."""
    fields = Fields(part)
    for name, field in part.model_fields.items():
        inner, many = _part(field)
        seen = above if above == "judge" else find_audience(field)
        path = f"{prefix}{name}{'[]' if many else ''}"
        plain = fields.type_in_words(name).replace("at least 1 characters, ", "")
        words = plain if inner is None else "list of parts" if many else "a part"
        meaning = fields.meaning(name) or (" ".join((inner.__dict__.get("__doc__") or "").split()) if inner else "")
        yield code(path), words, fields.default(name), SEEN_BY[str(seen)], meaning
        if inner is not None:
            yield from _rows(inner, f"{path}.", seen)


def _part(field: FieldInfo) -> tuple[type[SheetPart] | None, bool]:
    """What a field is made of where that has fields of its own, and whether there may be several."""
    members = (field.annotation, *get_args(field.annotation))
    parts = [member for member in members if isinstance(member, type) and issubclass(member, SheetPart)]
    return (parts[0], get_origin(field.annotation) is tuple) if parts else (None, False)
