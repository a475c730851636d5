"""A model drafts scenes, and nothing is served before a person's yes."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from app.characters.loading import read_own_scenes
from app.cli.main import cli
from app.toolkit.templates import find_packaged_folder
from tests.support.chat_server import Received, Reply, serving
from tests.support.forked_programs import ROOT

HOB = find_packaged_folder("character_sheets") / "hob_tarrant.yaml"
GOOD = {
    "player": "Who taught you to pole a ferry?",
    "probe": "relation: mother",
    "kind": "small_talk",
    "notes": "His mother.",
}
TURNS = {"player": "Is that rope new?", "turns": ["It looks cut."], "probe": "event: rope", "kind": "recent_event"}


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    folder = tmp_path / "sheets"
    folder.mkdir()
    return Path(shutil.copy(HOB, folder / HOB.name))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["sheets", "scenes", *map(str, arguments)])


def propose(sheet: Path, text: str, *more: object) -> Result:
    body = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()

    def answer(number: int, received: Received) -> Reply:
        return Reply(body)

    with serving(answer) as server:
        return run(sheet, "--propose", 8, "--policy", server.url, "--model", "m", "--yes", *more)


def propose_scenes(sheet: Path, *proposed: Any) -> Result:
    return propose(sheet, f"<think>hm</think>```json\n{json.dumps({'scenes': proposed})}\n```")


def read_drafts(sheet: Path) -> Any:
    return yaml.safe_load((sheet.parent / "scenes" / "drafts" / sheet.name).read_text(encoding="utf-8"))


def test_drafts_wait_in_a_file_and_are_not_served(sheet: Path) -> None:
    told = propose_scenes(sheet, GOOD, TURNS)
    drafts = read_drafts(sheet)
    shown = [(one.get("approved", False), one["scene"]["player"], one["scene"]["probe"]) for one in drafts["drafts"]]
    assert (told.exit_code, shown) == (
        0,
        [(False, GOOD["player"], GOOD["probe"]), (False, TURNS["player"], TURNS["probe"])],
    )
    assert "one request: at most" in told.stderr
    assert run(sheet).stdout == "hob_tarrant: 0 scenes for training, 0 for testing, 2 drafts\n"


@pytest.mark.parametrize(
    ("proposed", "reason"),
    [
        ({**GOOD, "player": GOOD["player"].upper()}, "nearly the same"),
        ({**GOOD, "player": "Tell me, \u001b[2Jplease."}, "control characters"),
        ({**GOOD, "turns": ["a"] * 4}, "`turns`: wanted is a list of at most 3 entries"),
        ({**GOOD, "id": "../../etc/passwd"}, "it has an unknown field"),
        ({"player": "Hm?"}, "`probe`: missing"),
        ({**GOOD, "kind": "memory"}, "a scene of kind `memory` needs more"),
        ("a text", "wanted is an object"),
    ],
)
def test_what_cannot_be_used_is_left_out_and_counted(sheet: Path, proposed: Any, reason: str) -> None:
    told = propose_scenes(sheet, GOOD, proposed)
    assert (told.exit_code, len(read_drafts(sheet)["drafts"]), reason in told.stderr) == (0, 1, True), told.stderr


@pytest.mark.parametrize("reply", ["", '{"scenes": 1}', "[" * 100_000, '{"scenes": []}'])
def test_a_reply_of_another_form_leaves_nothing(sheet: Path, reply: str) -> None:
    told = propose(sheet, reply)
    assert (told.exit_code, (sheet.parent / "scenes").exists()) == (2, False)


def test_a_line_that_gives_a_secret_away_is_left_out(sheet: Path) -> None:
    secrets = yaml.safe_load(HOB.read_text(encoding="utf-8"))["secrets"]
    told = propose_scenes(sheet, {**GOOD, "player": f"Is it true: {secrets[0]['leak_terms'][0]}?"}, GOOD)
    assert "1 left out: it gives a secret away" in told.stderr


def test_the_cost_is_confirmed_on_a_terminal_alone(sheet: Path) -> None:
    server, prices = ("--policy", "http://127.0.0.1:9/v1", "--model", "m"), ("--input-price", 1, "--output-price", 2)
    told = run(sheet, "--propose", 2, *server, *prices)
    assert (told.exit_code, "and 400 completion tokens, at most 0.00" in told.stderr) == (2, True), told.stderr


def test_nobody_but_a_person_approves(sheet: Path) -> None:
    propose_scenes(sheet, GOOD)
    told = run(sheet, "--approve")
    assert (told.exit_code, "a person approves drafts" in told.stderr) == (2, True)


def approve_on_a_terminal(sheet: Path, answers: str) -> str:
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "app.cli", "sheets", "scenes", str(sheet), "--approve"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        os.close(terminal)
        os.write(master, "".join(f"{answer}\n" for answer in answers).encode())
        told, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 0, told
    return told


def test_a_person_goes_through_the_drafts_and_a_yes_in_the_file_counts_too(sheet: Path) -> None:
    written = {**GOOD, "player": "How deep is it here?"}
    propose_scenes(sheet, GOOD, TURNS, {**GOOD, "player": "What do you eat on the water?"}, written)
    drafts = read_drafts(sheet)
    drafts["drafts"][-1]["approved"] = True
    (sheet.parent / "scenes" / "drafts" / sheet.name).write_text(yaml.safe_dump(drafts), encoding="utf-8")
    told = approve_on_a_terminal(sheet, "ynl")
    served = {scene.player for one in read_own_scenes(sheet.parent) for scene in one.scenes}
    later = [one["scene"]["player"] for one in read_drafts(sheet)["drafts"]]
    assert (served, later) == (
        {written["player"], GOOD["player"]},
        ["What do you eat on the water?"],
    )
    assert ("for judges: His mother." in told, "1 dropped, 1 kept for later" in told) == (True, True)
    assert run(sheet).stdout == "hob_tarrant: 2 scenes for training, 0 for testing, 1 drafts\n"
