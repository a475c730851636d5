"""Drafts: a sheet and a scene that are still being written, made into a cast like any other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError

from app.characters.casting import Cast, cast_in_scene
from app.characters.scenes import Scene, SceneEvent, SceneSet
from app.characters.schema import CharacterSheet, Text
from app.characters.sheet_sources import parse_findable
from app.domain.errors import InvalidRequest
from app.domain.suggestions import suggest
from app.domain.values import FiniteJson, Frozen, Name

PartT = TypeVar("PartT", bound=BaseModel)

SheetText = Annotated[str, Field(min_length=1, max_length=1024 * 1024)]


class DraftEvent(Frozen):
    """An event that the character knows of."""

    time: Text = "just now"
    """When it happened, in the words of the world."""
    text: Text


class SheetDraft(Frozen):
    """A character (`character` or `sheet`) in a scene (`line` or `scene`)."""

    character: Name | None = None
    """Id of a served sheet."""
    sheet: SheetText | dict[str, FiniteJson] | None = None
    """A whole sheet: YAML or JSON text, or an object."""
    line: Text | None = None
    """What the player says, in a scene of one reply."""
    scene: Name | dict[str, FiniteJson] | None = None
    """Id of a served scene, or a scene in the format of the scene files, episodes included."""
    events: Annotated[tuple[DraftEvent, ...], Field(max_length=50)] = ()


def cast_draft(draft: SheetDraft, sheets: Sequence[CharacterSheet], scenes: Mapping[str, Scene]) -> Cast:
    """InvalidRequest naming `draft.<field>`, down to the field of the sheet or scene."""
    sheet, scene = _resolve_sheet(draft, sheets), _resolve_scene(draft, scenes)
    events = tuple(
        SceneEvent(id=f"draft-{number}", time=event.time, text=event.text)
        for number, event in enumerate(draft.events, start=1)
    )
    return cast_in_scene(sheet, scene.model_copy(update={"visible": scene.visible + events}))


def build_single_scene_set(cast: Cast) -> SceneSet:
    """A scene set with the scene of this cast only."""
    return SceneSet(character=cast.sheet.id, language=cast.sheet.voice.language, scenes=(cast.scene,))


def _resolve_sheet(draft: SheetDraft, sheets: Sequence[CharacterSheet]) -> CharacterSheet:
    if (draft.character is None) == (draft.sheet is None):
        raise InvalidRequest("give either character or sheet", field="draft.sheet")
    if draft.sheet is None:
        found = next((sheet for sheet in sheets if sheet.id == draft.character), None)
        if found is None:
            near = suggest(str(draft.character), (sheet.id for sheet in sheets))
            raise InvalidRequest(f"there is no character {draft.character!r}{near}", field="draft.character")
        return found
    if isinstance(draft.sheet, str):
        parsed = parse_findable(Path("sheet"), draft.sheet, CharacterSheet)
        if isinstance(parsed, list):
            first = parsed[0]
            line = f", in line {first.line}" if first.field else ""
            raise InvalidRequest(f"{first.message}{line}", field=".".join(filter(None, ("draft.sheet", first.field))))
        return parsed[1]
    return _validate_part(CharacterSheet, draft.sheet, "draft.sheet")


def _resolve_scene(draft: SheetDraft, scenes: Mapping[str, Scene]) -> Scene:
    if (draft.line is None) == (draft.scene is None):
        raise InvalidRequest("give either line or scene", field="draft.line")
    if draft.line is not None:
        return Scene(id="draft", kind="conversation", split="train", player=draft.line)
    if isinstance(draft.scene, str):
        if draft.scene not in scenes:
            near = suggest(draft.scene, scenes)
            raise InvalidRequest(f"there is no scene {draft.scene!r}{near}", field="draft.scene")
        return scenes[draft.scene]
    defaults: dict[str, FiniteJson] = {"id": "draft", "kind": "conversation", "split": "train"}
    return _validate_part(Scene, defaults | (draft.scene or {}), "draft.scene")


def _validate_part(model: type[PartT], value: Mapping[str, FiniteJson], name: str) -> PartT:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidRequest(first["msg"], field=".".join([name, *map(str, first["loc"])])) from None
