"""Prints the test files of one room of `app/`, and those elsewhere that import it: `python -m tests.rooms judges`.

A room is a folder below `app/`: `store`, `features/labels`, `envs/gsm8k`. What `make check` runs is left out."""

import re
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE: Final = frozenset({"trainers", "architecture", "deploy", "docs", "record"})
"""Folders of tests that `make test` does not run."""


def list_files(room: str) -> list[str]:
    """From the root, in order. ValueError for a room that is not there."""
    if not (ROOT / "app" / room).is_dir():
        known = ", ".join(sorted(path.parent.name for path in (ROOT / "app").glob("*/__init__.py")))
        raise ValueError(f"there is no room app/{room}; the rooms are {known}, and folders in them")
    package = re.escape(f"app.{room.strip('/').replace('/', '.')}")
    imports = re.compile(rf"^\s*(?:from|import) {package}\b", re.MULTILINE)
    own = ROOT / "tests" / room
    files = [path for path in (ROOT / "tests").rglob("test_*.py")]
    found = [path for path in files if own in path.parents or imports.search(path.read_text(encoding="utf-8"))]
    named = [path.relative_to(ROOT) for path in found]
    return sorted(path.as_posix() for path in named if path.parts[1] not in ELSEWHERE)


if __name__ == "__main__":
    try:
        sys.stdout.write(" ".join(list_files(sys.argv[1])))
    except ValueError as error:
        sys.exit(str(error))
