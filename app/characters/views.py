"""Views of a sheet for the policy, for judges and for public listings."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, lru_cache
from typing import Final

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo
from pydantic.main import IncEx

from app.characters.schema import CharacterSheet, LoreFact, Meta
from app.domain.values import Frozen, SameObject


class CharacterCard(Frozen):
    """Public summary of a character, without secrets or judge-only fields."""

    id: str
    name: str
    genre: str
    world: str
    language: str
    role: str | None
    stance: str | None
    """Null where the sheet does not say."""
    summary: str
    held_out: bool
    """Kept out of training: in the test split only."""
    digest: str


def build_character_cards(sheets: Iterable[CharacterSheet]) -> tuple[CharacterCard, ...]:
    return tuple(
        CharacterCard(
            id=sheet.id,
            name=sheet.identity.name,
            genre=sheet.meta.genre,
            world=sheet.meta.world,
            language=sheet.voice.language,
            role=sheet.identity.role,
            stance=sheet.core.stance,
            summary=sheet.meta.summary,
            held_out=sheet.meta.held_out,
            digest=sheet.digest,
        )
        for sheet in sheets
    )


def build_policy_view(sheet: CharacterSheet, as_of: datetime | None = None) -> dict[str, JsonValue]:
    """The fields that the policy's prompt may show, with the lore that the character knows and that holds then."""
    told = tuple(fact for fact in sheet.lore_facts if fact.known and fact.holds_at(as_of))
    return _dump_visible(sheet.model_copy(update={"lore_facts": told}))


def build_judge_view(sheet: CharacterSheet) -> dict[str, JsonValue]:
    """Everything to judge by. Nobody changes it, since all scenes of a character share it. Left out are fields for
    tests of judges, for listings and for retrieval, the lorebook, whose activated entries are passed separately, and
    probes, which are passed with those of the scene."""
    return _dump_for_judges(SameObject(sheet))


@lru_cache(maxsize=512)
def _dump_for_judges(kept: SameObject[CharacterSheet]) -> dict[str, JsonValue]:
    sheet = kept.value
    shown: dict[str, JsonValue] = sheet.model_dump(mode="json", exclude=_find_hidden_fields(sheet))
    shown["lore_facts"] = [fact.model_dump(mode="json", include=_get_shown_fields(fact)) for fact in sheet.lore_facts]
    if not sheet.actions.allowed:
        shown.pop("actions")
    return shown


def _find_hidden_fields(sheet: CharacterSheet) -> Mapping[str, IncEx | bool]:
    """A machine, and one who may speak for others, are exceptions: that a character is none need not be said."""
    is_usual = not sheet.identity.is_machine
    return {
        **_NOT_FOR_JUDGES,
        "identity": {"circles", "is_machine"} if is_usual else {"circles"},
        "output": {"speak_only_as_self"} if sheet.output.speak_only_as_self else set[str](),
    }


def _get_shown_fields(fact: LoreFact) -> set[str]:
    """Of lore that the character knows its text, and when it holds; of other lore also that it does not."""
    return {"text", "valid_from", "valid_to", *(() if fact.known else ("known",))}


_NOT_FOR_JUDGES: Final[Mapping[str, IncEx | bool]] = {
    "meta": set(Meta.model_fields) - {"genre", "notes"},
    "relationships": {"__all__": {"target_id"}},
    "lorebook": True,
    "scenario": {"greetings"},
    "probes": True,
    "gates": True,
}


def find_audience(field: FieldInfo) -> str | None:
    """`policy`, `judge` or `called_up`; None for a field that was not marked."""
    extra = field.json_schema_extra
    marked = extra.get("audience") if isinstance(extra, dict) else None
    return marked if isinstance(marked, str) else None


def _dump_visible(part: BaseModel) -> dict[str, JsonValue]:
    return {name: _to_json(getattr(part, name)) for name in _list_visible_fields(type(part))}


@cache
def _list_visible_fields(kind: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in kind.model_fields.items() if find_audience(field) == "policy")


def _to_json(value: object) -> JsonValue:
    if isinstance(value, BaseModel):
        return _dump_visible(value)
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a sheet cannot show {type(value).__name__}")
