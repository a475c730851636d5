"""The ladder of examples/README.md: what each file's first lines say that one will see is what it prints."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.chat_server import serving as judge_serving
from tests.support.gateways import Gateways
from tests.support.preferring import preferring
from tests.support.serving import ROOT, Served

pytestmark = pytest.mark.xdist_group("examples")

EXAMPLES = ROOT / "examples"


def run_example(name: str, *arguments: str, typed: str = "") -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def judged(gateways: Gateways, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with the panel of examples/judge_panel.yaml, whose judges find all replies equal."""
    shown = (EXAMPLES / "judge_panel.yaml").read_text(encoding="utf-8")
    settings = tmp_path_factory.mktemp("panel") / "gateway.yaml"
    with judge_serving(preferring) as first, judge_serving(preferring) as second:
        urls = {"http://127.0.0.1:9001/v1": first.url, "http://127.0.0.1:9002/v1": second.url}
        settings.write_text(re.sub("|".join(urls), lambda found: urls[found[0]], shown), encoding="utf-8")
        gateway = gateways.of(ATROPOS_ENVS_SETTINGS=str(settings), JUDGE_API_KEY="any")
        assert len(run_example("loop.py", gateway.url).splitlines()) == 12
        yield gateway


def test_both_judges_of_the_panel_score(judged: Served) -> None:
    newest = httpx.get(f"{judged.url}/groups", params={"run": "loop"}).json()["groups"][0]["group_id"]
    group = httpx.get(f"{judged.url}/groups/{newest}").json()
    assert {judgement["judge"] for judgement in group["judgements"]} == {"first", "second"}


def test_a_person_labels_on_a_terminal(judged: Served, tmp_path: Path) -> None:
    printed = run_example("labels.py", judged.url, "ada", typed="1 1\n2 1=3\n\nq\n")
    rows = tmp_path / "labels.jsonl"
    exported = CliRunner().invoke(cli, ["export", str(rows), "--shape", "labels", "--url", judged.url])
    assert exported.exit_code == 0, exported.output
    stored = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    counted = printed.count("Name each reply once."), printed.count("Thank you: stored.")
    assert (counted, len(stored)) == ((1, 1), 2)


def test_the_page_of_atropos_takes_three_batches(judged: Served) -> None:
    printed = run_example("atropos_trainer.py", f"{judged.url}/compat/atropos/example")
    assert [line.split(",", 1)[0] for line in printed.splitlines()] == [f"batch {n}: 8 sequences" for n in (1, 2, 3)]


def test_the_house_questions_are_all_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("ATROPOS_ENVS_SETTINGS", "examples/house_questions/settings.yaml")
    done = CliRunner().invoke(cli, ["data", "check", "qa", "--json"])
    assert done.exit_code == 0, done.output
    (data,) = json.loads(done.stdout)["datasets"]
    used = {split: (counts["used"], counts["left_out"]) for split, counts in data["splits"].items()}
    assert (data["name"], used) == ("house_questions", {"train": (6, []), "test": (2, [])})
