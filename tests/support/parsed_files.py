"""What was parsed from a text is kept for the next time: each gateway of the tests reads the same sheets, scenes and
prompts again, which takes a third of its start."""

from functools import lru_cache
from pathlib import Path
from typing import Final

from app.characters import loading
from app.toolkit import package_data

_MOST: Final = 512
_read_yaml = package_data.read_yaml


def keep_parsed_files() -> None:
    """In this process and what is forked from it. To be called before what reads files is imported. What is refused
    is parsed again."""
    loading.parse_model = lru_cache(_MOST)(loading.parse_model)
    package_data.read_yaml = _read_yaml_once


def _read_yaml_once(path: Path) -> object:
    found = path.stat()
    return _recall(path, found.st_mtime_ns, found.st_size)


@lru_cache(_MOST)
def _recall(path: Path, changed: int, size: int) -> object:
    return _read_yaml(path)
