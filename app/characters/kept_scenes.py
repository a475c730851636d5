"""Scenes that somebody kept from play, in files beside the others: one for each character."""

import os
from pathlib import Path
from threading import Lock
from typing import Final

import yaml

from app.characters.loading import SCENES, parse_model, read_text
from app.characters.scenes import Scene, SceneSet
from app.characters.schema import CharacterSheet
from app.domain.errors import Conflict

_WRITING: Final = Lock()


def keep_scene(sheets: Path, sheet: CharacterSheet, scene: Scene) -> Path:
    """Adds the scene to `scenes/kept_<character>.yaml`; one that is kept again replaces itself. Blocking. Conflict
    where the folder cannot be written; InvalidRequest for a file that cannot be read."""
    path = sheets / SCENES / f"kept_{sheet.id}.yaml"
    with _WRITING:
        try:
            known = parse_model(read_text(path), path.name, SceneSet).scenes if path.exists() else ()
            others = tuple(one for one in known if one.id != scene.id)
            kept = SceneSet(character=sheet.id, language=sheet.voice.language, scenes=(*others, scene))
            _write(path, write_scenes(kept))
        except OSError as error:
            raise Conflict(f"{SCENES}/{path.name} cannot be written: {error.strerror}") from error
    return path


def write_scenes(scenes: SceneSet) -> str:
    """As a scene file has them."""
    told = scenes.model_dump(mode="json", exclude_defaults=True)
    text: str = yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=120)
    return text


def _write(path: Path, text: str) -> None:
    """Whoever reads it meanwhile finds the former file."""
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
