"""What docs/judging.md and its reference tell people to type works, and their tables are complete."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.judging import Judgement, JudgeReport
from app.judges.gold_cases import MUTATIONS
from app.main.components import build_panels
from app.settings import PREFIX, read_settings
from tests.support.chat_server import serving as judge_serving
from tests.support.preferring import preferring
from tests.support.serving import ROOT, serving

PAGES = [ROOT / "docs" / name for name in ("judging.md", "judge_reference.md")]
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SHOWN = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def first_cells(marker: str) -> Iterator[str]:
    """The codes in the first column of the table that follows."""
    for line in PAGE.split(f"{marker}\n", 1)[1].splitlines():
        if not line.startswith("|"):
            return
        yield from re.findall(r"`(\w+)`", line.split("|")[1])


def test_the_commands_work_verbatim(tmp_path: Path) -> None:
    (shown,) = blocks("yaml")
    separator = "\necho; echo ----\n"
    with judge_serving(preferring) as judge:
        settings = re.sub(r"base_url: \S+", f"base_url: {judge.url}", shown)
        (tmp_path / "gateway.yaml").write_text(settings, encoding="utf-8")
        with serving(tmp_path, settings={"JUDGE_API_KEY": "a-key"}) as gateway:
            script = "set -euo pipefail\n" + separator.join(blocks("sh")).replace(SHOWN, gateway.url)
            done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        asked = {(received.authorization, received.body["model"]) for received in judge.received}
    assert done.returncode == 0, done.stderr
    listed, scored = (json.loads(part) for part in done.stdout.split("----"))
    entries = {one["name"]: (one["environments"], one["for_training"]) for one in listed["judges"]}
    assert entries == {
        "offline": ([], False),
        "careful": (["npc_arena", "rlaif"], True),
        "plain": ([], True),
    }
    assert (scored["scoring"]["judges"], scored["scoring"]["outcome"]) == (["offline"], "scored")
    assert scored["original"] == [0.5, 0.5]
    assert scored["rewards"][0] > scored["rewards"][1]
    assert asked == {("Bearer a-key", "the-judge-model")}


def test_the_shown_settings_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = blocks("yaml")
    file = tmp_path / "gateway.yaml"
    file.write_text(shown, encoding="utf-8")
    monkeypatch.setenv(PREFIX + "SETTINGS", str(file))
    monkeypatch.setenv("JUDGE_API_KEY", "a-key")
    read = read_settings()
    assert read.model_dump(mode="json", exclude_unset=True) == yaml.safe_load(shown)
    assert set(build_panels(read).judges) == {"offline", "careful", "plain"}


def test_every_part_of_a_judgement_is_told() -> None:
    told = list(first_cells("<!-- judgement: read by the tests -->"))
    assert sorted(told) == sorted(set(Judgement.model_fields) - {"instead_of"})


def test_every_part_of_a_report_is_told() -> None:
    assert sorted(first_cells("<!-- report: read by the tests -->")) == sorted(JudgeReport.model_fields)


def test_every_figure_of_a_check_is_explained() -> None:
    explained = PAGE.split("| figure | is | a bad one means |")[1].split("\n\n", 1)[0]
    measured = PAGE.split("<!-- generated: judge-check-figures -->")[1].split("<!-- end -->")[0]
    names = [line.split("|")[1].strip() for line in explained.strip().splitlines()[1:]]
    assert names == [line.split("|")[1].strip() for line in measured.strip().splitlines()[2:]]


def test_the_shown_kinds_of_spoiling_are_ours_in_their_order() -> None:
    shown = list(first_cells("<!-- generated: judge-check-kinds -->"))
    assert shown == [mutation.name for mutation in MUTATIONS if mutation.name in shown]
    assert len(shown) > len(MUTATIONS) / 2


def shown_commands() -> list[str]:
    return re.findall(r"^atropos-envs .*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("shown", shown_commands())
def test_shown_commands_are_ours(shown: str) -> None:
    words = shlex.split(shown)[1:]
    command = words[: 2 if words[0] in ("judges", "runs") else 1]
    helped = CliRunner().invoke(cli, [*command, "--help"], env={"COLUMNS": "200"})
    options = [word for word in words if word.startswith("--")]
    assert (helped.exit_code, [option for option in options if option not in helped.stdout]) == (0, [])


def test_commands_are_shown() -> None:
    assert [command.split()[1:3] for command in shown_commands()] == [
        ["judges", "list"],
        ["judges", "check"],
        ["judges", "bench"],
        ["judges", "bench"],
        ["runs", "estimate"],
        ["rescore", "--run"],
    ]


def test_the_tutorial_quotes_the_check() -> None:
    tutorial = (ROOT / "docs" / "judge_tutorial.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| ([^|]+) \| (\d\.\d{3}) \|(?: .* \|)? \**(passed|missed)\** \|$", re.MULTILINE)
    quoted, checked = row.findall(tutorial), row.findall(PAGE)
    assert (len(quoted), [one for one in quoted if one not in checked]) == (5, [])
