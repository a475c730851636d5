"""The pages on `process` and `evaluate` name every option, and the commands know every option that they name."""

import re

import pytest

from app.cli.main import COMMANDS, DeferredCommand
from docs.generate import ROOT

PAGES = {"process": {"process"}, "evaluating": {"evaluate", "compare"}}


@pytest.mark.parametrize("page", PAGES)
def test_options_are_all_there(page: str) -> None:
    named = set(re.findall(r"--[a-z][a-z-]+", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")))
    options = {
        option
        for name in PAGES[page]
        for one in DeferredCommand(name, COMMANDS[name]).load().params
        for option in one.opts
        if option[0] == "-"
    }
    assert named == options
