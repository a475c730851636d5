"""What the tools of the tree of files do and say."""

import pytest
from pydantic import JsonValue

from app.envs.tool_agent.episodes import build_call
from app.envs.tool_agent.files import FilesService, FilesState, StoredFile
from tests.support.simulated import Case, error, tools, tried, worked

TREE = FilesState(
    files=(
        StoredFile(path="/a/keep.txt", text="one\ntwo\n"),
        StoredFile(path="/a/sub/x.tmp", text="x"),
        StoredFile(path="/system/v.txt", text="1"),
    ),
    frozen=("/system",),
)
KEEP: JsonValue = ["/a/keep.txt", "one", "two"]
TEMP: JsonValue = ["/a/sub/x.tmp", "x"]
SYSTEM: JsonValue = ["/system/v.txt", "1"]
FILES: dict[str, Case] = {
    "a folder": ((build_call("list_folder", path="/a/"),), {"folder": "/a", "entries": ["keep.txt", "sub/"]}, None),
    "everything": ((build_call("list_folder", path="/"),), {"folder": "/", "entries": ["a/", "system/"]}, None),
    "no folder": ((build_call("list_folder", path="/b"),), error("no folder /b"), None),
    "a file": ((build_call("read_file", path="/a/keep.txt"),), {"path": "/a/keep.txt", "text": "one\ntwo\n"}, None),
    "no file": ((build_call("read_file", path="/a"),), error("/a is a folder"), None),
    "up and out": (
        (build_call("read_file", path="/a/../system/v.txt"),),
        error("paths begin with / and are made of letters, digits and _ . -, without . and .."),
        None,
    ),
    "found": (
        (build_call("search_files", text="TWO"),),
        {"found": [{"path": "/a/keep.txt", "line": "two"}], "more": False},
        None,
    ),
    "found by name": (
        (build_call("search_files", text=".tmp", folder="/a"),),
        {"found": [{"path": "/a/sub/x.tmp", "line": "/a/sub/x.tmp"}], "more": False},
        None,
    ),
    "created": (
        (build_call("create_file", path="/n.txt", text="\n hi \n\n"),),
        {"created": "/n.txt"},
        [KEEP, TEMP, ["/n.txt", "hi"], SYSTEM],
    ),
    "created over another": (
        (build_call("create_file", path="/a/keep.txt", text=""),),
        error("there is a file at /a/keep.txt already"),
        None,
    ),
    "created in a file": (
        (build_call("create_file", path="/a/keep.txt/b", text=""),),
        error("there is a file at /a/keep.txt/b already"),
        None,
    ),
    "created as a folder": (
        (build_call("create_file", path="/a", text=""),),
        error("/a is a folder; name the file in it"),
        None,
    ),
    "created too long": (
        (build_call("create_file", path="/l", text="x" * 4001),),
        error("a file has at most 4000 characters"),
        None,
    ),
    "replaced": (
        (build_call("replace_text", path="/a/keep.txt", old="two", new="2"),),
        {"changed": "/a/keep.txt"},
        [["/a/keep.txt", "one", "2"], TEMP, SYSTEM],
    ),
    "replaced unclear": (
        (build_call("replace_text", path="/a/keep.txt", old="o", new="0"),),
        error("the old text is there 2 times; it must be there once"),
        None,
    ),
    "appended": (
        (build_call("append_line", path="/a/keep.txt", line="three"),),
        {"changed": "/a/keep.txt"},
        [["/a/keep.txt", "one", "two", "three"], TEMP, SYSTEM],
    ),
    "copied out": (
        (build_call("copy_file", path="/system/v.txt", to="/v.txt"),),
        {"copied": "/system/v.txt", "to": "/v.txt"},
        [KEEP, TEMP, SYSTEM, ["/v.txt", "1"]],
    ),
    "copied in": ((build_call("copy_file", path="/a/keep.txt", to="/system/k"),), error("/system is read-only"), None),
    "moved": (
        (build_call("move_file", path="/a/sub/x.tmp", to="/b/y"),),
        {"moved": "/a/sub/x.tmp", "to": "/b/y"},
        [KEEP, ["/b/y", "x"], SYSTEM],
    ),
    "moved out": ((build_call("move_file", path="/system/v.txt", to="/v"),), error("/system is read-only"), None),
    "deleted": ((build_call("delete", path="/a"),), {"deleted": ["/a/keep.txt", "/a/sub/x.tmp"], "files": 2}, [SYSTEM]),
    "deleted nothing": ((build_call("delete", path="/zz"),), error("nothing is at /zz"), None),
    "deleted everything": ((build_call("delete", path="/"),), error("/system is read-only"), None),
}


@pytest.mark.parametrize("name", FILES)
def test_what_the_tools_of_files_do_and_say(name: str) -> None:
    calls, told, after = FILES[name]
    assert worked(FilesService(), TREE, calls) == (told, after)


def test_every_tool_of_files_is_in_the_table() -> None:
    assert tried(FILES) == tools(FilesService())
