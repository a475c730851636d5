"""docs/character_tutorial.md works as it stands there: its files, its commands, and what it says they show."""

import json
import re
from pathlib import Path

import pytest

from app.settings import PREFIX, read_settings
from tests.support.gateways import Gateways
from tests.support.serving import ROOT
from tests.support.shell_blocks import run_shell_blocks

PAGE = (ROOT / "docs" / "character_tutorial.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's files are, each under the name in its first line."""
    made = tmp_path_factory.mktemp("tutorial")
    for name, text in re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def printed(folder: Path, gateways: Gateways) -> list[str]:
    """What each block of the page prints."""
    (folder / "gateway.yaml").rename(folder / "judged.yaml")  # the page writes it after these commands
    gateway = gateways.of(ATROPOS_ENVS_CHARACTER_SHEETS=str(folder / "harbour"))
    return run_shell_blocks(PAGE, folder, gateway.url)


def test_the_sheet_has_no_errors_and_can_be_tried(printed: list[str]) -> None:
    assert re.findall(r"(\d+) errors", printed[0]) == ["0"]
    assert ("reward" in printed[0], "nothing was stored" in printed[0]) == (True, True)


def test_mara_is_told_what_she_could_know(printed: list[str]) -> None:
    explained = json.loads(printed[2])
    told = {one["event"]["id"] for one in explained["events"] if one["told"]}
    hidden = {(one["event"]["id"], one["reason"]) for one in explained["hidden"]}
    assert (told, hidden) == ({"petrel", "oil"}, {("dismissal", "not_visible")})


def test_the_rewards_are_those_of_the_table(printed: list[str]) -> None:
    (task,) = json.loads(printed[3])["tasks"]
    (group,) = json.loads(printed[4])["groups"]
    said = re.findall(r"^\| the \w+ \| (?:about )?([\d.]+) \| [^`|]*(?:`(\w+)`.*)?\|$", PAGE, re.MULTILINE)
    scored = [
        (f"{score['reward']:.2g}", next((flag for flag in score["flags"] if flag in PAGE), ""))
        for score in group["scores"]
    ]
    assert ("The brig Harrier was lost" in task["messages"][0]["content"], [*map(tuple, said)]) == (True, scored)


def test_the_settings_can_be_read(printed: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "SETTINGS", str(folder / "judged.yaml"))
    read = read_settings()
    assert (read.environments["npc_arena"].judges, [*read.judges]) == (("careful",), ["careful"])
