"""Commands and columns on the pages about trainers are what the gateway has."""

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from app.cli.main import DeferredCommand
from app.cli.main import list_commands as list_all_commands
from app.features.exports.rows import MULTI_TURN_TRAINERS, PROMPT_ROW_TYPES, TRAINERS_WITH_TOOLS, Trainer
from tests.support.commands import ended
from tests.support.gateways import Gateways
from tests.support.serving import ROOT

PAGES = ("trainers", "agent_loops", "nemo_gym", "reward_endpoints", "trl")


def read_page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def list_commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", read_page(page), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("atropos-envs ")]


TASKS = sorted({tuple(command[1:]) for page in PAGES for command in list_commands(page) if command[0] == "tasks"})


def test_columns_turns_and_tools_are_those_of_the_rows() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \| (yes|no) \| (yes|no) \|", read_page("trainers"), re.MULTILINE)
    told = {name: (re.findall(r"`(\w+)`", columns), turns, tools) for name, columns, turns, tools in rows}
    words = {True: "yes", False: "no"}
    assert {name: (sorted(columns), *rest) for name, (columns, *rest) in told.items()} == {
        name: (sorted(PROMPT_ROW_TYPES[name].model_fields), words[name in MULTI_TURN_TRAINERS], words[tooled])
        for name in get_args(Trainer)
        for tooled in [name in TRAINERS_WITH_TOOLS]
    }


@pytest.mark.parametrize("arguments", TASKS, ids=" ".join)
def test_commands_write_rows(gateways: Gateways, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = tmp_path / arguments[0]
    done = ended("tasks", file, *arguments[1:], "--count", "2", "--url", gateways.of().url)
    assert (done.returncode, file.stat().st_size > 100) == (0, True), done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_commands_know_their_options(page: str) -> None:
    for name, *arguments in list_commands(page):
        known = {
            option for one in DeferredCommand(name, list_all_commands()[name]).load().params for option in one.opts
        }
        assert {argument for argument in arguments if argument.startswith("--")} <= known


def test_files_are_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"examples/\w+\.\w+", read_page(page))}
    assert {name for name in named if not (ROOT / name).is_file()} == set()
