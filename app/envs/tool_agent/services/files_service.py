"""The file service: its tools and its rules."""

from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.files_scenarios import KINDS
from app.envs.tool_agent.services.files_state import MOST_SHOWN, FilesState, StoredFile, make_prefix, parse_path
from app.envs.tool_agent.services.simulated_service import (
    Arguments,
    OperationRefused,
    ServiceOperation,
    ServiceScenario,
    build_tool,
)
from app.envs.tool_agent.services.value_formats import AS_WRITTEN
from app.toolkit.seeded import SeededRandom

MOST_FOUND: Final = 20
PATH: Final[JsonValue] = {"type": "string", "description": "Like /notes/today.txt"}
FOLDER: Final[JsonValue] = {"type": "string", "description": "Like /notes; / is everything"}
TO: Final[JsonValue] = {"type": "string", "description": "The path of the result, with the file's name"}
TEXT: Final[JsonValue] = {"type": "string", "description": "All of the text; lines end with \\n"}


def _list_folder(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    folder = parse_path(arguments["path"])
    inside = [one.path.removeprefix(make_prefix(folder)) for one in state.list_recursively(folder)]
    if not inside:
        raise OperationRefused(f"no folder {folder[:MOST_SHOWN]}")
    names = sorted({f"{name.partition('/')[0]}/" if "/" in name else name for name in inside})
    return state, {"folder": folder, "entries": [*names]}


def _read_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file = state.find_file(parse_path(arguments["path"]))
    return state, {"path": file.path, "text": file.text}


def _search_files(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    wanted = str(arguments["text"]).casefold().strip()
    found: list[JsonValue] = [
        {"path": file.path, "line": line.strip()}
        for file in state.list_recursively(parse_path(arguments.get("folder", "/")))
        for line in (file.path, *file.text.splitlines())
        if wanted and wanted in line.casefold()
    ]
    return state, {"found": found[:MOST_FOUND], "more": len(found) > MOST_FOUND}


def _create_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    path = _check_free_path(state, arguments["path"])
    return state.with_file(StoredFile(path=path, text=arguments["text"])), {"created": path}


def _replace_text(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file = state.find_file(parse_path(arguments["path"]))
    _check_changeable(state, file.path)
    places = file.text.count(arguments["old"])
    if places != 1:
        raise OperationRefused(f"the old text is there {places} times; it must be there once")
    changed = file.model_copy(update={"text": file.text.replace(arguments["old"], arguments["new"])})
    return state.with_file(changed), {"changed": file.path}


def _append_line(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file = state.find_file(parse_path(arguments["path"]))
    _check_changeable(state, file.path)
    text = "\n".join([*file.text.splitlines(), *arguments["line"].splitlines()]) + "\n"
    return state.with_file(file.model_copy(update={"text": text})), {"changed": file.path}


def _copy_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file, to = state.find_file(parse_path(arguments["path"])), _check_free_path(state, arguments["to"])
    return state.with_file(StoredFile(path=to, text=file.text)), {"copied": file.path, "to": to}


def _move_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file, to = state.find_file(parse_path(arguments["path"])), _check_free_path(state, arguments["to"])
    _check_changeable(state, file.path)
    moved = state.without_files(frozenset({file.path})).with_file(StoredFile(path=to, text=file.text))
    return moved, {"moved": file.path, "to": to}


def _delete_path(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    path = parse_path(arguments["path"])
    gone = [path] if state.has_file(path) else [one.path for one in state.list_recursively(path)]
    if not gone:
        raise OperationRefused(f"nothing is at {path[:MOST_SHOWN]}")
    for one in gone:
        _check_changeable(state, one)
    return state.without_files(frozenset(gone)), {"deleted": [*gone[:MOST_FOUND]], "files": len(gone)}


def _check_free_path(state: FilesState, text: str) -> str:
    """The path, if a file may be made there."""
    path = parse_path(text)
    _check_changeable(state, path)
    if path == "/" or state.list_recursively(path):
        raise OperationRefused(f"{path[:MOST_SHOWN]} is a folder; name the file in it")
    if state.has_file(path) or any(path.startswith(make_prefix(one.path)) for one in state.files):
        raise OperationRefused(f"there is a file at {path[:MOST_SHOWN]} already")
    return path


def _check_changeable(state: FilesState, path: str) -> None:
    for folder in state.frozen:
        if path.startswith(make_prefix(folder)):
            raise OperationRefused(f"{folder} is read-only")


OPERATIONS: Final = (
    ServiceOperation(
        build_tool("list_folder", "Files and folders right in a folder; folders end with /.", ("path",), path=FOLDER),
        _list_folder,
    ),
    ServiceOperation(build_tool("read_file", "The text of a file.", ("path",), path=PATH), _read_file),
    ServiceOperation(
        build_tool(
            "search_files",
            "Lines that contain a text, and paths that do, in a folder and all folders in it.",
            ("text",),
            text={"type": "string", "minLength": 1},
            folder=FOLDER,
        ),
        _search_files,
    ),
    ServiceOperation(
        build_tool(
            "create_file",
            "Make a file where there is none. Folders that are missing are made.",
            ("path", "text"),
            path=PATH,
            text=TEXT,
        ),
        _create_file,
    ),
    ServiceOperation(
        build_tool(
            "replace_text",
            "Replace a text that a file holds exactly once. With an empty new text it is taken out.",
            ("path", "old", "new"),
            path=PATH,
            old={"type": "string", "minLength": 1},
            new={"type": "string"},
        ),
        _replace_text,
    ),
    ServiceOperation(
        build_tool(
            "append_line",
            "Add a line at the end of a file.",
            ("path", "line"),
            path=PATH,
            line={"type": "string", "minLength": 1},
        ),
        _append_line,
    ),
    ServiceOperation(build_tool("copy_file", "Copy a file.", ("path", "to"), path=PATH, to=TO), _copy_file),
    ServiceOperation(build_tool("move_file", "Move or rename a file.", ("path", "to"), path=PATH, to=TO), _move_file),
    ServiceOperation(
        build_tool(
            "delete",
            "Delete a file, or a folder with everything in it, for good.",
            ("path",),
            path={"type": "string", "description": "Of a file or a folder"},
        ),
        _delete_path,
    ),
)


class FilesService:
    name: Final = "files"
    rules: Final = (
        "A folder that holds a file named KEEP stays as it is, with all folders in it: nothing in it is changed, moved "
        "or deleted, though the tools would do it; copying out of it is allowed. Change, move and delete nothing "
        "that the user did not ask for, above all nothing outside the folder that was named. A file that is moved or "
        "copied keeps its name unless the user gives it another. Where these rules forbid a part of a wish, do the "
        f"rest of it and say what was left. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[ServiceOperation[FilesState], ...]:
        return OPERATIONS

    def canonicalise(self, state: FilesState) -> JsonValue:
        """Blank lines and blanks around lines are ignored."""
        return [
            [file.path, *(line.strip() for line in file.text.splitlines() if line.strip())]
            for file in sorted(state.files, key=lambda one: one.path)
        ]

    def draw_scenario(self, draws: SeededRandom) -> ServiceScenario[FilesState]:
        return draws.one(KINDS)(draws)
