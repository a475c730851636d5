"""The state of a file tree. Folders exist only through their files; there are no empty ones."""

import re
from typing import Final

from app.domain.values import Frozen
from app.envs.tool_agent.services.simulated_service import OperationRefused

MOST_SHOWN: Final = 80
"""Characters of an unknown path that an error quotes."""
MOST_TEXT: Final = 4_000
MOST_FILES: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")


class StoredFile(Frozen):
    path: str
    text: str


class FilesState(Frozen):
    files: tuple[StoredFile, ...] = ()
    frozen: tuple[str, ...] = ()
    """Read-only folders."""

    def find_file(self, path: str) -> StoredFile:
        for one in self.files:
            if one.path == path:
                return one
        raise OperationRefused(
            f"{path[:MOST_SHOWN]} is a folder" if self.list_recursively(path) else f"no file {path[:MOST_SHOWN]}"
        )

    def list_recursively(self, folder: str) -> tuple[StoredFile, ...]:
        """Files in a folder and its subfolders."""
        return tuple(one for one in self.files if one.path.startswith(make_prefix(folder)))

    def has_file(self, path: str) -> bool:
        return any(one.path == path for one in self.files)

    def without_files(self, paths: frozenset[str]) -> "FilesState":
        return self.model_copy(update={"files": tuple(one for one in self.files if one.path not in paths)})

    def with_file(self, file: StoredFile) -> "FilesState":
        """Replaces the file at its path, if there is one."""
        if len(file.text) > MOST_TEXT:
            raise OperationRefused(f"a file has at most {MOST_TEXT} characters")
        if len(self.files) >= MOST_FILES:
            raise OperationRefused("the disk is full")
        files = [*(one for one in self.files if one.path != file.path), file]
        return self.model_copy(update={"files": tuple(sorted(files, key=lambda one: one.path))})


def make_prefix(folder: str) -> str:
    """The prefix of all paths in a folder."""
    return folder if folder.endswith("/") else f"{folder}/"


def parse_path(text: str) -> str:
    """`/`, or names that each follow one slash. The call is refused for anything else, such as `..`."""
    names = [name for name in text.split("/") if name]
    if not text.startswith("/") or not all(_NAME.fullmatch(name) and name.strip(".") for name in names):
        raise OperationRefused("paths begin with / and are made of letters, digits and _ . -, without . and ..")
    return "/" + "/".join(names)
