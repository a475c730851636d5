"""Prints the test files of one room of `app/`, and those elsewhere that import it: `python -m tests.rooms judges`.

A room is a folder below `app/`: `store`, `features/labels`, `envs/gsm8k`."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def list_files(room: str) -> list[str]:
    """From the root, in order. ValueError for a room that is not there."""
    if not (ROOT / "app" / room).is_dir():
        known = ", ".join(sorted(path.parent.name for path in (ROOT / "app").glob("*/__init__.py")))
        raise ValueError(f"there is no room app/{room}; the rooms are {known}, and folders in them")
    package = re.escape(f"app.{room.strip('/').replace('/', '.')}")
    imports = re.compile(rf"^\s*(?:from|import) {package}\b", re.MULTILINE)
    own = ROOT / "tests" / room
    files = (path for path in (ROOT / "tests").rglob("test_*.py") if "trainers" not in path.parts)
    found = (path for path in files if own in path.parents or imports.search(path.read_text(encoding="utf-8")))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


if __name__ == "__main__":
    try:
        sys.stdout.write(" ".join(list_files(sys.argv[1])))
    except ValueError as error:
        sys.exit(str(error))
