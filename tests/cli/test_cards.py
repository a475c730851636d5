"""`sheets import` and `sheets export`: what they print and write, what they refuse, and the commands of the page."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from pydantic import JsonValue
from typer.testing import CliRunner, Result

from app.characters.cards.files import MAX_JSON_BYTES, read_bytes
from app.characters.cards.lorebooks import read_lorebook
from app.characters.loading import MAX_FILE_BYTES, read_sheet
from app.cli.main import cli
from app.domain.worlds import Lorebook
from app.toolkit.templates import find_packaged_folder
from docs.generate import ROOT
from tests.support.cards import BOOK_V2, V1, V2, V3, image, text_chunk
from tests.support.tables import read_table

TABLE = read_table(__file__, "cards.yaml", tuple[tuple[list[str], str], ...])

HOB = find_packaged_folder("character_sheets") / "hob_tarrant.yaml"


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that breaks no line."""
    monkeypatch.setenv("COLUMNS", "400")


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sheets", *arguments])


def written(name: str, content: JsonValue | bytes) -> str:
    path = Path(name)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return name


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "characters.md").read_text(encoding="utf-8")
    section = page.partition("## Bring your own characters")[2].partition("\n## ")[0]
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^atropos-envs (.*)$", section, re.MULTILINE)]
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "mara_quill.json", tmp_path / "examples")
    results = [CliRunner().invoke(cli, command) for command in commands]
    assert [(result.exit_code, command[1]) for result, command in zip(results, commands, strict=True)] == [
        (0, "import"),
        (0, "check"),
        (0, "try"),
        (0, "export"),
    ], [result.output for result in results]
    again = CliRunner().invoke(cli, ["sheets", "import", "mara_quill_v3.json", "--to", "again"])
    assert (again.exit_code, read_sheet(Path("again/mara_quill.yaml"))) == (
        0,
        read_sheet(Path("my_sheets/mara_quill.yaml")),
    )


def test_an_import_says_what_became_of_the_card() -> None:
    shown = ran("import", written("m.png", image(text_chunk("ccv3", V3), text_chunk("chara", V2))), "--to", "mine")
    expected = read_table(__file__, "import_told.yaml", list[str])
    assert (shown.exit_code, [line for line in expected if line not in shown.output]) == (0, []), shown.output
    assert [path.name for path in Path("mine").iterdir()] == ["mara_quill.yaml"]


def test_an_import_for_programs_is_one_object_a_line() -> None:
    shown = ran("import", written("a.json", V1), written("b.json", BOOK_V2), "--json", "--to", "mine")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["file"], row["sheet"], row["container"], row["source"]) for row in rows] == [
        ("a.json", "mine/mara_quill.yaml", "JSON", "character card V1"),
        ("b.json", "mine/lamps.lorebook.json", "JSON", "lorebook V2"),
    ]
    text = Path("mine/lamps.lorebook.json").read_text(encoding="utf-8")
    assert Lorebook.model_validate_json(text) == read_lorebook(BOOK_V2)[0]


def test_nothing_is_written_over_without_being_told_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("mine", encoding="utf-8")
    Path("mara_quill.yaml").symlink_to(elsewhere)
    refused = ran("import", written("a.json", V1))
    forced = ran("import", "a.json", "--force")
    assert (refused.exit_code, refused.stderr, forced.exit_code) == (
        2,
        "mara_quill.yaml: already exists; use --force to overwrite it\n",
        0,
    )
    assert (elsewhere.read_text(encoding="utf-8"), Path("mara_quill.yaml").is_symlink()) == ("mine", False)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not a card", "a.json: this is no card"),
        ({"spec": "chara_card_v2", "data": {"name": [{}]}}, "a.json: data.name: is missing"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(content: JsonValue | bytes, says: str) -> None:
    shown = ran("import", written("a.json", content), "missing[b].json", written("b.json", V1))
    assert (shown.exit_code, shown.stderr.splitlines()[0].startswith(says), Path("mara_quill.yaml").exists()) == (
        2,
        True,
        True,
    ), shown.stderr
    assert shown.stderr.splitlines()[1] == "missing[b].json: no such file or folder"


@pytest.mark.parametrize(("arguments", "says"), TABLE)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], says: str) -> None:
    written("a.json", V1)
    shown = ran(*arguments)
    assert (shown.exit_code, says in shown.stderr, shown.stdout, list(Path().glob("*.yaml"))) == (2, True, "", [])


@pytest.mark.parametrize(
    ("option", "spec", "keyword"), [("--v2", "chara_card_v2", b"chara\0"), ("--v3", "chara_card_v3", b"ccv3\0")]
)
def test_a_card_goes_into_an_image_and_comes_out_again(option: str, spec: str, keyword: bytes) -> None:
    picture = written("p.png", image(text_chunk("chara", V2)))
    shown = ran("export", "hob_tarrant", option, "--png", picture)
    content = Path("hob_tarrant.png").read_bytes()
    ran("import", "hob_tarrant.png", "--to", "mine")
    assert (shown.exit_code, spec in shown.output, "including its secrets" in shown.output, keyword in content) == (
        0,
        True,
        True,
        True,
    )
    assert read_sheet(Path("mine/hob_tarrant.yaml")) == read_sheet(HOB)
    assert Path("p.png").read_bytes() == image(text_chunk("chara", V2))


def test_an_export_writes_over_nothing_and_gives_the_card_back() -> None:
    ran("import", written("a.json", V3), "--world", "point", "--language", "fr")
    sheet = read_sheet(Path("mara_quill.yaml"))
    assert (sheet.voice.language, sheet.meta.world) == ("fr", "point")
    first = ran("export", "mara_quill.yaml", "--out", "b.json")
    second = ran("export", "mara_quill.yaml", "--out", "b.json")
    assert (first.exit_code, second.exit_code, second.stderr) == (
        0,
        2,
        "b.json: already exists; use --force to overwrite it\n",
    )
    assert read_bytes(Path("b.json").read_bytes(), "b.json").value == V3


def test_what_a_stranger_wrote_moves_no_cursor() -> None:
    hostile: JsonValue = {**V1, "\x1b[2J\rowned": 1, "description": "{{\x1b[31mred}}"}
    wrong: JsonValue = {"entries": {"0": {"\x1b[2J": 1}}}
    shown = ran("import", written("a.json", hostile), written("b.json", wrong))
    assert ("\x1b[2J" in shown.output + shown.stderr, "\\x1b[2J\\rowned" in shown.output, shown.exit_code) == (
        False,
        True,
        2,
    )
    assert "entries: none can be read: the first has \\x1b[2J" in shown.stderr


def test_a_card_too_large_for_a_sheet_says_so() -> None:
    room = MAX_JSON_BYTES - len(json.dumps({**V1, "assets": ""}))
    shown = ran("import", written("a.json", {**V1, "assets": "x" * room}))
    assert (shown.exit_code, shown.stderr, list(Path().glob("*.yaml"))) == (
        2,
        f"mara_quill: the sheet would exceed {MAX_FILE_BYTES} bytes\n",
        [],
    )
