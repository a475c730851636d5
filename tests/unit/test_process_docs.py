"""The page on `process` names every option, and the command knows every option that it names."""

import re

import typer

from app.cli.main import cli
from docs.generate import ROOT


def test_options_are_all_there() -> None:
    command = typer.main.get_command(cli)
    named = set(re.findall(r"--[a-z][a-z-]+", (ROOT / "docs" / "process.md").read_text(encoding="utf-8")))
    options = {option for one in command.commands["process"].params for option in one.opts}  # type: ignore[attr-defined]
    assert named == options
