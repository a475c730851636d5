"""The command line as a whole: its table of commands, and what the first level must not import."""

import os
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import pytest
from typer.core import TyperGroup
from typer.testing import CliRunner

from app.cli.main import DeferredCommand, cli, list_commands
from app.terminal.completion import complete_run
from tests.support.tables import read_table

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("httpx", "fastapi", "sqlalchemy", "yaml", "numpy", "aiohttp", "openai", "app.settings")


@pytest.mark.parametrize("name", list_commands())
def test_the_table_says_the_first_sentence_of_a_commands_own_help(name: str) -> None:
    places = list_commands()
    group, _, command = name.partition(" ")
    found = DeferredCommand(group, places[group]).load()
    if command:
        assert isinstance(found, TyperGroup)
        found = found.commands[command]  # type: ignore[assignment]
    first = f"{' '.join(str(found.help).split()).split('. ')[0].rstrip('.')}."
    assert (found.name, first) == (command or name, places[name].help)


FIRST_LEVEL = read_table(__file__, "first_level.yaml", dict[str, tuple[list[str], dict[str, str]]])


@pytest.mark.parametrize(("arguments", "more"), FIRST_LEVEL.values(), ids=FIRST_LEVEL)
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


@pytest.mark.parametrize(("line", "completed"), read_table(__file__, "completions.yaml", list[tuple[str, list[str]]]))
def test_names_are_completed(line: str, completed: list[str]) -> None:
    words = {"COMP_WORDS": f"atropos-envs {line}", "COMP_CWORD": str(len(line.split()))}
    ran = CliRunner().invoke(
        cli, [], prog_name="atropos-envs", env={"_ATROPOS_ENVS_COMPLETE": "complete_bash", **words}
    )
    assert ran.stdout.split() == completed


@pytest.mark.parametrize("name", [name for name in list_commands() if " " not in name])
def test_options_for_environments_runs_and_judges_are_completed_everywhere(name: str) -> None:
    below = [DeferredCommand(name, list_commands()[name]).load()]
    for command in below:
        below += getattr(command, "commands", {}).values()
    bare = [
        (command.name, parameter.name)
        for command in below
        for parameter in command.params
        if parameter.name in {"env", "run", "judge"} and parameter._custom_shell_complete is None
    ]
    assert bare == []


def test_runs_are_completed_from_the_gateway_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("ATROPOS_ENVS_PORT", str(listening.getsockname()[1]))
        Thread(target=_answer_runs, args=(listening,), daemon=True).start()
        assert complete_run("") == ["blue", "red"]


def _answer_runs(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(65536)
        body = b'{"runs": [{"name": "red"}, {"name": "blue"}]}'
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def test_tables_are_not_cut_when_piped(tmp_path: Path) -> None:
    nowhere = tmp_path / ("a" * 100) / "mounted"
    (tmp_path / "gateway.yaml").write_text(f"datasets:\n  gsm8k: {nowhere}\n", encoding="utf-8")
    listed = CliRunner().invoke(cli, ["envs", "list"]).stdout
    (line,) = (line for line in listed.splitlines() if "gsm8k" in line)
    assert "mounted" in line


def test_a_command_says_which_store_it_opens_and_that_it_is_new(tmp_path: Path) -> None:
    file = tmp_path / "atropos_envs.db"
    said = [CliRunner().invoke(cli, ["migrate"]).stderr.strip() for _ in range(2)]
    assert said == [f"store: {file} (new: there was none)", f"store: {file}"]


def test_a_port_in_use_is_said_before_anything_is_migrated(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = CliRunner().invoke(cli, ["serve", "--port", str(taken.getsockname()[1])])
    assert (ran.exit_code, "the port is in use" in ran.stderr, list(tmp_path.iterdir())) == (2, True, [])
