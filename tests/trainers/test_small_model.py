"""The commands of docs/train_tutorial.md with SmolLM2-135M: begun, measured, trained and measured again.

Two steps show that all is connected; `make train-small` makes half of those of the page, and the model has to learn."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.serving import ROOT, free_port, serving
from tests.trainers.installed import TUNERS, TUNING, running, wait_until
from tests.trainers.test_learning_curve import PAGE, SHOWN

NEEDS = (*TUNING, TUNERS / ".small")
STEPS = int(os.environ.get("ATROPOS_TEST_SMALL_STEPS", "2"))
LEARNED = 0.45
"""Held-out mean that 15 steps reach; some .15 before."""
MINUTES = 60


def run_example(folder: Path, words: str, url: str, *more: str) -> str:
    (shown,) = re.findall(rf"^\.venv-trl/bin/python examples/(trl_small\.py {words}.*)$", PAGE, re.MULTILINE)
    script, *arguments = shlex.split(shown.replace(SHOWN, url))
    with running(folder, ROOT / "examples" / script, *arguments, *more, installed=TUNERS) as program:
        program.finish(MINUTES * 60)
        return program.said()


@contextmanager
def serving_model(folder: Path, name: str, port: int) -> Iterator[str]:
    script = ROOT / "examples" / "trl_small.py"
    with running(folder, script, "serve", name, port, installed=TUNERS) as program:
        wait_until(lambda: f"serves {name}" in program.said())
        yield f"http://127.0.0.1:{port}/v1"


def measure(folder: Path, out: str, url: str, policy: str) -> float:
    """The mean by the page's command that writes to `out`, on fewer tasks where few steps are made."""
    (shown,) = re.findall(rf"^atropos-envs (evaluate .*--out {out}\b.*)$", PAGE, re.MULTILINE)
    words = shlex.split(shown.replace("http://127.0.0.1:8001/v1", policy))
    if STEPS < 10:
        words[words.index("--tasks") + 1] = "8"
    done = CliRunner().invoke(cli, [*words, "--url", url])
    assert done.exit_code == 0, done.output
    return float(json.loads((folder / out / "report.json").read_text(encoding="utf-8"))["mean"]["value"])


@pytest.mark.slow
def test_a_real_model_learns_by_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as served:
        run_example(tmp_path, "begin", served.url)
        trained = run_example(tmp_path, "train", served.url, str(STEPS))
        monkeypatch.chdir(tmp_path)
        means = []
        for name, out in (("small-begun", "small-before"), ("small-trained", "small-after")):
            with serving_model(tmp_path, name, free_port()) as policy:
                means.append(measure(tmp_path, out, served.url, policy))
    compared = (tmp_path / "small-after" / "comparison.json").exists()
    assert (f"{STEPS} steps took" in trained, compared, STEPS < 15 or means[0] < LEARNED <= means[1]) == (True,) * 3, (
        means
    )
