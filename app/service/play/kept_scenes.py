"""Scenes that somebody kept from play, in a file of each character beside the other scenes that authors wrote."""

from typing import Final

import yaml

from app.characters.loading import parse_model
from app.characters.scenes import Scene, SceneSet
from app.characters.schema import CharacterSheet
from app.domain.authored_files import SCENE_FILES, AuthoredChange
from app.domain.errors import Conflict, NotFound
from app.service.authoring import AuthoringService

_TRIES: Final = 5
"""Others may keep scenes of the character at the same moment."""


async def keep_scene(authoring: AuthoringService, sheet: CharacterSheet, scene: Scene) -> None:
    """Adds the scene to `scenes/kept_<character>.yaml`; one that is kept again replaces itself. In force on return.
    Raises as `AuthoringService.save` does."""
    file = f"{SCENE_FILES}kept_{sheet.id}.yaml"
    for place in range(_TRIES):
        based_on = authoring.find_number(file)
        others = tuple(one for one in await _read_scenes(authoring, file) if one.id != scene.id)
        kept = SceneSet(character=sheet.id, language=sheet.voice.language, scenes=(*others, scene))
        try:
            await authoring.save(
                [AuthoredChange(file=file, text=write_scenes(kept), based_on=based_on)], "", "from play"
            )
        except Conflict:
            if place + 1 == _TRIES:
                raise
        else:
            return


async def _read_scenes(authoring: AuthoringService, file: str) -> tuple[Scene, ...]:
    try:
        text = (await authoring.read(file)).text
    except NotFound:
        return ()
    return parse_model(text, file, SceneSet).scenes


def write_scenes(scenes: SceneSet) -> str:
    """As a scene file has them."""
    told = scenes.model_dump(mode="json", exclude_defaults=True)
    text: str = yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=120)
    return text
