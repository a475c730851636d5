"""The guide's environment in ten minutes: files and commands as they stand there, in a checkout of its own."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.serving import ROOT, serving
from tests.support.shell_blocks import SHOWN, run_shell

pytestmark = [pytest.mark.xdist_group("contributing"), pytest.mark.slow]

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = GUIDE.split("## An environment in ten minutes")[1].split("\n## ")[0]
BLOCK = re.compile(r"(?:^`(?P<path>[\w/.]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SERVE = "make run\n"


@dataclass(frozen=True)
class Step:
    kind: str
    path: str
    """Where the text is to be written; empty for commands."""
    text: str


STEPS = [Step(found["kind"], found["path"] or "", found["text"]) for found in BLOCK.finditer(SECTION)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this one, whose virtual environment runs this one's programs over the copy."""
    folder = tmp_path_factory.mktemp("guide") / "checkout"
    for name in ("app", "character_sheets", "migrations", "tests"):
        shutil.copytree(ROOT / name, folder / name)  # with the byte code: compiling all takes seconds
    shutil.copy(ROOT / "pyproject.toml", folder)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in (("python", ""), ("atropos-envs", " -m app.cli")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable}{arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder


def carried_out(steps: list[Step], folder: Path) -> Iterator[str]:
    """What each command says."""
    for step in steps:
        if step.path:
            (folder / step.path).write_text(step.text, encoding="utf-8")
        else:
            yield run_shell(step.text, folder)


def test_the_section_works_as_it_stands_there(checkout: Path, tmp_path: Path) -> None:
    place = next(number for number, step in enumerate(STEPS) if step.text == SERVE)
    began, checked = carried_out(STEPS[:place], checkout)
    assert "wrote app/envs/community/roman_sums/environment.py\n" in began
    assert "passed: all checks" in checked
    with serving(tmp_path, settings={"PYTHONPATH": str(checkout)}) as gateway:
        (asked,) = [step.text for step in STEPS[place + 1 :]]
        said = run_shell(f"{asked.replace(SHOWN, gateway.url)}\nrm batch.json", checkout)
    (group,) = json.loads(said[said.index('{"groups"') :])["groups"]
    assert [(score["reward"], score["rationale"]) for score in group["scores"]] == [
        (1.0, "correct"),
        (0.0, "it is not the sum in its usual form"),
        (0.0, "no answer was committed"),
    ]


def test_what_the_guide_shows_fits_the_house(checkout: Path) -> None:
    files = [step.path for step in STEPS if step.path.endswith(".py")]
    for command in ("ruff format --check", "ruff check"):
        run_shell(f"{sys.executable} -m {command} {' '.join(files)}", checkout)
    run_shell(f"{sys.executable} -m mypy --strict {files[0]}", checkout)
