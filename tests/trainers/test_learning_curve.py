"""The curve of docs/trl.md: a model that begins with nothing, TRL, a live gateway, and figures from its store."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.serving import ROOT, serving
from tests.trainers.installed import TUNERS, TUNING, running

NEEDS = TUNING
EXAMPLES = ROOT / "examples"


def said(folder: Path, *command: str | Path, seconds: float = 60) -> str:
    with running(folder, *command, installed=TUNERS) as program:
        program.finish(seconds)
        return program.said()


@pytest.mark.slow
def test_a_model_learns_and_the_store_has_the_curve(tmp_path: Path) -> None:
    problems, lines, picture = tmp_path / "problems", tmp_path / "rollouts.jsonl", tmp_path / "curve.svg"
    said(tmp_path, EXAMPLES / "learning_curve.py", "problems", problems, seconds=300)
    with serving(tmp_path, settings={"ATROPOS_ENVS_DATASETS__GSM8K": str(problems)}) as served:
        told = said(tmp_path, EXAMPLES / "learning_curve.py", "train", served.url, seconds=25 * 60)
        wanted = ["export", str(lines), "--env", "gsm8k", "--run", "learning-curve", "--url", served.url]
        exported = CliRunner().invoke(cli, wanted)
    assert exported.exit_code == 0, exported.output
    drawn = said(tmp_path, EXAMPLES / "plot_curve.py", lines, picture)
    steps, first, last = re.search(r"(\d+) steps, from ([\d.]+) to ([\d.]+)", drawn).groups()  # type: ignore[union-attr]
    held_out = re.search(r"not trained on: ([\d.]+)", told)
    assert held_out is not None
    assert int(steps) == 150
    assert float(first) < 0.2
    assert float(last) > 0.9
    assert float(held_out[1]) > 0.9
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")  # noqa: S314
