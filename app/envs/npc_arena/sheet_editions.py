"""What authors may edit of the characters, as the texts of a version: its sheets, and the scenes of its folder."""

from collections.abc import Sequence
from typing import Final

from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.domain.digests import canonical_json
from app.domain.values import Frozen

_START: Final = '{"scene_sets":'


class OwnScenes(Frozen):
    """Scenes of a version, beside its sheets."""

    scene_sets: tuple[SceneSet, ...]


def write_edition(sheets: Sequence[CharacterSheet], scene_sets: Sequence[SceneSet]) -> tuple[str, ...]:
    own = OwnScenes(scene_sets=tuple(scene_sets))
    return tuple(canonical_json(one.model_dump(mode="json")) for one in (*sheets, own))


def read_edition(texts: Sequence[str]) -> tuple[list[CharacterSheet], tuple[SceneSet, ...] | None]:
    """Versions from before scenes could be written hold none: None. ValueError."""
    scenes = next((text for text in texts if text.startswith(_START)), None)
    sheets = [CharacterSheet.model_validate_json(text) for text in texts if text is not scenes]
    return sheets, None if scenes is None else OwnScenes.model_validate_json(scenes).scene_sets
