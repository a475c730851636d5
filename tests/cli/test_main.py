"""The command line as a whole: its table of commands, and what the first level must not import."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import COMMANDS, DeferredCommand, cli

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("httpx", "fastapi", "sqlalchemy", "yaml", "numpy", "aiohttp", "app.settings")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_the_first_sentence_of_a_commands_own_help(name: str) -> None:
    found = DeferredCommand(name, COMMANDS[name]).load()
    first = f"{' '.join(str(found.help).split()).split('. ')[0].rstrip('.')}."
    assert (found.name, first) == (name, COMMANDS[name].help)


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (["--help"], {}),
        (["--version"], {}),
        ([], {"_ATROPOS_ENVS_COMPLETE": "complete_bash", "COMP_WORDS": "atropos-envs e", "COMP_CWORD": "1"}),
    ],
    ids=["help", "version", "completion"],
)
def test_the_first_level_imports_nothing_heavy(arguments: list[str], more: dict[str, str]) -> None:
    program = (
        "import atexit, sys\n"
        "sys.argv[0] = 'atropos-envs'\n"
        f"atexit.register(lambda: print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules]))\n"
        "from app.cli.main import run\n"
        "run()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines()[-1] == "loaded:"


def test_it_says_its_version_both_ways() -> None:
    said = [CliRunner().invoke(cli, [arguments]).stdout.strip() for arguments in ("--version", "version")]
    assert said == [version("atropos-environments")] * 2


def test_a_mistyped_command_gets_the_nearest_one() -> None:
    assert "Did you mean 'export'?" in CliRunner().invoke(cli, ["exprt"]).stderr
