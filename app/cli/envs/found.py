"""Lookup of an environment by name, file or folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.domain.suggestions import suggest
from app.main.discovery import ENVIRONMENT_MODULE, discover, environment_in
from app.ports.environment import Environment


@dataclass(frozen=True)
class Found:
    kind: type[Environment]
    where: str
    """Name or path, to find it in another process."""


def found(where: str) -> Found:
    """ValueError when there is no such environment, or its code fails."""
    if where.endswith(".py") or "/" in where:
        return _in_file(Path(where))
    known = all_environments()
    if where not in known:
        raise ValueError(
            f"unknown environment {where!r}{suggest(where, known)}; known environments: {', '.join(sorted(known))}. "
            f"Give a file or folder by its path, such as ./{where}"
        )
    return Found(known[where], where)


def all_environments() -> dict[str, type[Environment]]:
    """ValueError when the code of one fails on import."""
    try:
        return discover()
    except Exception as error:  # another's code may raise whatever it likes
        raise ValueError(f"cannot load an environment: {' <- '.join(_said(error))}") from error


def _in_file(file: Path) -> Found:
    inside = _module_in(file) if file.is_dir() else file
    try:
        return Found(environment_in(inside), str(inside.resolve()))
    except FileNotFoundError:
        raise ValueError(f"file not found: {inside}") from None


def _module_in(folder: Path) -> Path:
    names = (f"{ENVIRONMENT_MODULE}.py", "__init__.py")
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def _said(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__
