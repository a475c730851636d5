"""What the report on fine-tuning tells people to type works as it stands there, where nothing is configured."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as serving_policy
from tests.support.policy_server import MODEL, Speech, script
from tests.support.serving import ROOT, serving
from tests.support.tables import read_table

pytestmark = [pytest.mark.xdist_group("npc_report"), pytest.mark.slow]

PAGE = (ROOT / "docs" / "npc_finetuning_report.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXPORTS = re.findall(r"^atropos-envs export (\w+\.\w+) (.*)$", "".join(BLOCKS), re.MULTILINE)
LADDER = read_table(__file__, "ladder.yaml", tuple[str, ...])
"""From a poor reply to good ones."""
GATEWAY, POLICY = "http://127.0.0.1:8000", "http://127.0.0.1:9001/v1"
FAILS = "# exits with 1"
PLAIN = re.compile(r"(?:atropos-envs [^$<>|&;\n]*\n)+")
"""Commands of ours and nothing of the shell: run in this process, which spares its start."""


@dataclass(frozen=True)
class Ended:
    code: int
    said: str
    troubles: str = ""


@dataclass(frozen=True)
class Place:
    """Where commands are typed: a folder as a checkout looks, a gateway and an inference server in reach."""

    folder: Path
    gateway: str
    policy: str
    environment: Mapping[str, str]

    def run(self, commands: str) -> Ended:
        reached = commands.replace(GATEWAY, self.gateway).replace(POLICY, self.policy)
        if PLAIN.fullmatch(reached):
            return self._here([shlex.split(line, comments=True)[1:] for line in reached.splitlines()])
        bash = ["bash", "-euo", "pipefail", "-c", reached]
        env = {**os.environ, **self.environment}
        done = subprocess.run(bash, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    def _here(self, commands: list[list[str]]) -> Ended:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            ended = [CliRunner().invoke(cli, words, env=self.environment) for words in commands]
        return Ended(max(one.exit_code for one in ended), "".join(one.output for one in ended))


def answers(received: Received, place: int) -> Speech:
    """Some of it better than the rest, whoever is asked for."""
    return Speech(LADDER[place % len(LADDER)].format(line=received.messages[-1]["content"][:60]))


def by_any_name(number: int, received: Received) -> Reply:
    return script(answers)(number, replace(received, body={**received.body, "model": MODEL}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    served = tmp_path_factory.mktemp("npc-report")
    folder, programs = served / "checkout", served / "bin"
    folder.mkdir()
    programs.mkdir()
    for name in ("examples", "character_sheets"):
        (folder / name).symlink_to(ROOT / name)
    for name, arguments in (("python", ""), ("atropos-envs", " -m app.cli")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    with serving_policy(by_any_name, models=["my-model"]) as policy, serving(served) as gateway:
        environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "ATROPOS_ENVS_PORT": gateway.url.rpartition(":")[2],
            "ATROPOS_ENVS_DATABASE_URL": f"sqlite:///{served / 'commands.db'}",
        }
        yield Place(folder, gateway.url, policy.url, environment)


@pytest.fixture(scope="module")
def done(place: Place) -> Mapping[str, Ended]:
    """Every block of the page, one after the other."""
    return {block: place.run(block) for block in BLOCKS}


def rows(file: Path) -> int:
    if file.suffix == ".parquet":
        return int(parquet.read_metadata(file).num_rows)
    return len(file.read_bytes().splitlines())


def test_every_command_does_what_it_says(place: Place, done: Mapping[str, Ended]) -> None:
    """What only the offline judge scored is left out: of examples and pairs that is everything here."""
    wrong = {block: ended for block, ended in done.items() if ended.code != (FAILS in block)}
    judged = [rows(place.folder / name) for name, options in EXPORTS if re.search("--shape (sft|dpo)", options)]
    (told,) = [ended.said for block, ended in done.items() if "/worlds/reedgate/context" in block]
    context = json.loads(told[told.index('{"') :])
    assert (len(done), wrong, judged) == (len(BLOCKS), {}, [0] * len(judged))
    assert (context["messages"][-1]["content"], bool(context["passages"])) == ("Is the ferry running?", True)


def test_with_its_flag_the_files_are_full(place: Place, done: Mapping[str, Ended]) -> None:
    """Thresholds are lowered to what a word counter pays; characters whose tasks have not come up have no rows."""
    anybody = [(name, options) for name, options in EXPORTS if "--label" not in options]
    for name, options in anybody:
        lower = re.sub(r"--threshold \S+", "--threshold 0.1", options)
        assert place.run(f"atropos-envs export {name} {lower} --offline-judge --force\n").code == 0
    assert [name for name, _ in anybody if not rows(place.folder / name)] == []


def test_only_the_sheet_is_taken_out_of_rows(place: Place, done: Mapping[str, Ended]) -> None:
    """Over the rows of whoever came up: the sheet is the system message."""
    (block,) = [block for block in done if "without_sheet.jsonl" in block]
    anybody = re.sub(r" --label \w+ (.*) --threshold \S+", r" --threshold 0.1 --offline-judge --force", block)
    assert place.run(anybody).code == 0
    with_sheet, without = (lines(place.folder / f"{name}_sheet.jsonl") for name in ("with", "without"))
    assert {row["prompt"][0]["role"] for row in with_sheet} == {"system"}
    assert without == [{**row, "prompt": row["prompt"][1:]} for row in with_sheet]


def lines(file: Path) -> list[dict[str, list[dict[str, str]]]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
