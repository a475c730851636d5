"""Scenes that somebody kept from play, in a file of each character beside the other scenes that authors wrote."""

import asyncio
from hashlib import sha256
from typing import Final

from pydantic import ValidationError

from app.characters.loading import parse_model
from app.characters.scenes import Scene, SceneSet
from app.characters.schema import CharacterSheet
from app.characters.yaml_documents import build_yaml_refusal, dump_yaml
from app.domain.authored_files import MAX_AUTHORED, SCENE_FILES, AuthoredChange
from app.domain.errors import Conflict, NotFound, TooLarge
from app.service.authoring import AuthoringService

_TRIES: Final = 5
"""Others may keep scenes of the character at the same moment."""
_LONGEST_ID: Final = 59
"""With which the name of the file is one of an `AuthoredFile`."""


async def keep_scene(authoring: AuthoringService, sheet: CharacterSheet, scene: Scene, author: str) -> None:
    """Adds the scene to `scenes/kept_<character>.yaml`; one that is kept again replaces itself. In force on return.
    Raises as `AuthoringService.save` and `build_change` do."""
    file = name_kept_file(sheet.id)
    for place in range(_TRIES):
        based_on = authoring.find_number(file)
        text = await _read_text(authoring, file)
        change = await asyncio.to_thread(build_change, sheet, scene, text, based_on)
        try:
            await authoring.save([change], author, "from play")
        except Conflict:
            if place + 1 == _TRIES:
                raise
        else:
            return


def name_kept_file(character: str) -> str:
    """A long id is cut, with a digest in place of its end."""
    if len(character) > _LONGEST_ID:
        character = f"{character[: _LONGEST_ID - 9]}_{sha256(character.encode()).hexdigest()[:8]}"
    return f"{SCENE_FILES}kept_{character}.yaml"


def build_change(sheet: CharacterSheet, scene: Scene, text: str | None, based_on: int) -> AuthoredChange:
    """The file with the scene; `text` is what it holds, None where there is none. Blocking. InvalidRequest for what
    makes no file of scenes; TooLarge for a file that is full."""
    file = name_kept_file(sheet.id)
    known = () if text is None else parse_model(text, file, SceneSet).scenes
    others = tuple(one for one in known if one.id != scene.id)
    try:
        kept = SceneSet(character=sheet.id, language=sheet.voice.language, scenes=(*others, scene))
    except ValidationError as error:
        raise build_yaml_refusal(file, error) from None
    written = write_scenes(kept)
    if len(written) > MAX_AUTHORED:
        raise TooLarge(f"{file} would hold more than {MAX_AUTHORED:,} characters: remove scenes from it", field="turn")
    return AuthoredChange(file=file, text=written, based_on=based_on)


async def _read_text(authoring: AuthoringService, file: str) -> str | None:
    try:
        return (await authoring.read(file)).text
    except NotFound:
        return None


def write_scenes(scenes: SceneSet) -> str:
    """As a scene file has them."""
    return dump_yaml(scenes.model_dump(mode="json", exclude_defaults=True))
