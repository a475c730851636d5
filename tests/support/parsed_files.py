"""What was parsed and composed of files is kept for the next time: each gateway of the tests reads the same sheets,
scenes and prompts again, which takes half of its start."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from app.characters import loading
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.envs.npc_arena.scenes import SceneComposer
from app.toolkit import templates

_MOST: Final = 512
_read_yaml = templates.read_yaml
_compose = SceneComposer.compose
_COMPOSED: dict[tuple[int, ...], tuple[object, tuple[SceneSet, ...]]] = {}
"""By the identities of what they are composed of, which is kept beside them, so that no other object gets its place."""
_MOST_COMPOSED: Final = 16


def keep_parsed_files() -> None:
    """In this process and what is forked from it. To be called before what reads files is imported. What is refused
    is parsed again."""
    loading.parse_model = lru_cache(_MOST)(loading.parse_model)
    templates.read_yaml = _read_yaml_once
    SceneComposer.compose = _compose_once  # type: ignore[method-assign,assignment]


def _compose_once(composer: SceneComposer, sheets: Iterable[CharacterSheet]) -> tuple[SceneSet, ...]:
    given = tuple(sheets)
    of = (*given, composer.plan, *composer.languages.values(), *composer.worlds, *composer.packaged)
    key = tuple(map(id, of))
    if key not in _COMPOSED:
        if len(_COMPOSED) >= _MOST_COMPOSED:
            _COMPOSED.clear()
        _COMPOSED[key] = of, _compose(composer, given)
    return _COMPOSED[key][1]


def _read_yaml_once(path: Path) -> object:
    found = path.stat()
    return _recall(path, found.st_mtime_ns, found.st_size)


@lru_cache(_MOST)
def _recall(path: Path, changed: int, size: int) -> object:
    return _read_yaml(path)
