"""Lookup of an environment by name, file or folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.domain.suggestions import suggest
from app.main.discovery import ENVIRONMENT_MODULE, discover, load_environment
from app.ports.environment import Environment


@dataclass(frozen=True)
class FoundEnvironment:
    kind: type[Environment]
    where: str
    """Name or path, to find it in another process."""


def find_environment(where: str) -> FoundEnvironment:
    """ValueError when there is no such environment, or its code fails."""
    if where.endswith(".py") or "/" in where:
        return _load_from_file(Path(where))
    known = discover_environments()
    if where not in known:
        raise ValueError(
            f"unknown environment {where!r}{suggest(where, known)}; known environments: {', '.join(sorted(known))}. "
            f"Give a file or folder by its path, such as ./{where}"
        )
    return FoundEnvironment(known[where], where)


def discover_environments() -> dict[str, type[Environment]]:
    """ValueError when the code of one fails on import."""
    try:
        return discover()
    except Exception as error:  # another's code may raise whatever it likes
        raise ValueError(f"cannot load an environment: {' <- '.join(_describe_causes(error))}") from error


def _load_from_file(file: Path) -> FoundEnvironment:
    inside = _find_module(file) if file.is_dir() else file
    try:
        return FoundEnvironment(load_environment(inside), str(inside.resolve()))
    except FileNotFoundError:
        raise ValueError(f"file not found: {inside}") from None


def _find_module(folder: Path) -> Path:
    names = (f"{ENVIRONMENT_MODULE}.py", "__init__.py")
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def _describe_causes(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__
