"""`atropos-envs envs add` shows what a server is, and writes a block that serves it."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from app.cli.envs.adding import insert_block
from app.cli.main import cli
from app.domain.errors import UserError
from tests.support.openenv_server import start

BLOCK = "wordle:\n  serve: openenv\n  url: http://wordle:8000\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "environments:\n  wordle:\n    serve: openenv\n    url: http://wordle:8000\n"),
        (
            "port: 1  # ours\nenvironments:  # all\n  rlaif: {votes: 3}\n",
            "port: 1  # ours\nenvironments:  # all\n  wordle:\n    serve: openenv\n    url: http://wordle:8000\n"
            "  rlaif: {votes: 3}\n",
        ),
        ("port: 1", "port: 1\nenvironments:\n  wordle:\n    serve: openenv\n    url: http://wordle:8000\n"),
    ],
)
def test_a_block_is_added_to_settings_of_any_form(before: str, after: str) -> None:
    assert insert_block(before, BLOCK) == after


@pytest.mark.parametrize(
    "before", ["environments: {rlaif: {votes: 3}}\n", "environments:\n    rlaif: {votes: 3}\n", "- a\n", "a: [\n"]
)
def test_settings_that_would_say_something_else_are_left_alone(before: str) -> None:
    with pytest.raises(UserError, match="cannot be added to"):
        insert_block(before, BLOCK)


def test_a_server_is_tried_before_it_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with start() as server:
        asked = ["envs", "add", "openenv", server.url, "--json"]
        looked = CliRunner().invoke(cli, [*asked, "--dry-run", "--name", "game"])
        added = CliRunner().invoke(cli, [*asked, "--name", "game", "--max-turns", "3"])
        twice = CliRunner().invoke(cli, [*asked, "--name", "game"])
        taken = CliRunner().invoke(cli, [*asked, "--name", "gsm8k"])
    down = CliRunner().invoke(cli, [*asked, "--name", "other"])
    look = json.loads(added.stdout)
    assert [one.exit_code for one in (looked, added, twice, taken, down)] == [0, 0, 2, 2, 2]
    assert look["facts"] == {
        "kind": "openenv",
        "server_version": "1",
        "rule": "versioned",
        "replayable": True,
        "notes": [],
    }
    assert (look["prompt"], [len(one["rewards"]) for one in look["replies"]]) == (
        ["user: Game 0: say something."],
        [3, 3, 3],
    )
    assert json.loads(looked.stdout)["file"] == ""
    assert look["check"] == f"atropos-envs graders check openenv+{server.url} --rows FILE"
    assert yaml.safe_load((tmp_path / "gateway.yaml").read_text()) == {
        "environments": {"game": {"serve": "openenv", "url": server.url, "max_turns": 3}}
    }
