"""The commands of docs/train_tutorial.md: a model that begins with nothing, TRL, a live gateway, its store."""

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.serving import ROOT, serving
from tests.trainers.installed import TUNERS, TUNING, running

NEEDS = TUNING
PAGE = (ROOT / "docs" / "train_tutorial.md").read_text(encoding="utf-8")
SHOWN = "http://127.0.0.1:8000"


def run_shown(folder: Path, words: str, url: str = "", seconds: float = 300) -> str:
    """What the trainer's command of the page prints that has these words."""
    (shown,) = re.findall(rf"^\.venv-trl/bin/python (examples/.*{words}.*)$", PAGE, re.MULTILINE)
    script, *arguments = shlex.split(shown.replace(SHOWN, url))
    with running(folder, ROOT / script, *arguments, installed=TUNERS) as program:
        program.finish(seconds)
        return program.said()


@pytest.mark.slow
def test_a_model_learns_and_the_store_has_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (data,) = re.findall(r"^ATROPOS_ENVS_DATASETS__GSM8K=(\S+) atropos-envs serve$", PAGE, re.MULTILINE)
    (export,) = re.findall(r"^atropos-envs (export rollouts.*)$", PAGE, re.MULTILINE)
    run_shown(tmp_path, "problems")
    with serving(tmp_path, settings={"ATROPOS_ENVS_DATASETS__GSM8K": str(tmp_path / data)}) as served:
        told = run_shown(tmp_path, "learning_curve.py train", served.url, seconds=25 * 60)
        exported = CliRunner().invoke(cli, [*shlex.split(export), "--url", served.url])
    assert exported.exit_code == 0, exported.output
    drawn = run_shown(tmp_path, "plot_curve.py rollouts")
    steps, first, last = re.search(r"(\d+) steps, from ([\d.]+) to ([\d.]+)", drawn).groups()  # type: ignore[union-attr]
    held_out = re.search(r"not trained on: ([\d.]+)", told)
    assert held_out is not None
    assert int(steps) == 150
    assert float(first) < 0.2
    assert float(last) > 0.9
    assert float(held_out[1]) > 0.9
    assert ElementTree.parse(tmp_path / "curve.svg").getroot().tag.endswith("svg")  # noqa: S314
