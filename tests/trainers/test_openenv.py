"""OpenEnv's released client and its `openenv validate`, against a live gateway."""

import json
from pathlib import Path

import httpx
import pytest

from tests.support.openenv import PREFIX, right_actions
from tests.support.serving import ROOT, Served
from tests.trainers.installed import TUNERS, running

NEEDS = (TUNERS / ".installed",)
SEED = 11
PLAYED = ("gsm8k", "tool_calling", "tool_agent", "mastermind")


@pytest.mark.wire
def test_the_generic_client_plays(gateway: Served, tmp_path: Path) -> None:
    right = {name: right_actions(name, SEED) for name in PLAYED}
    (tmp_path / "right.json").write_text(json.dumps(right), encoding="utf-8")
    out = tmp_path / "out.json"
    command = ("openenv_client.py", gateway.url, "openenv", tmp_path / "right.json", out)
    with running(tmp_path, *command, installed=TUNERS) as program:
        program.finish()
    (stored,) = httpx.get(f"{gateway.url}/groups", params={"run": "openenv"}).json()["groups"]
    assert (json.loads(out.read_text(encoding="utf-8")), stored["size"], stored["policy"]["step"]) == (
        {
            "played": {
                name: {"prompted": True, "reward": 1.0, "done": True, "steps": len(right[name])} for name in PLAYED
            },
            "refused": [
                "Server error: there is no episode: reset first (code: EXECUTION_ERROR)",
                "Server error: `sed`: unknown field; did you mean 'seed'? (code: VALIDATION_ERROR)",
                "float",
            ],
            "continued": 0.875,
            "tools": [],
            "group": {"groups": 1, "flags": [[], [], [], []]},
        },
        4,
        1,
    )


def test_the_example_of_the_page_runs(gateway: Served, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "openenv.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0].replace("http://127.0.0.1:8000", gateway.url)
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    with running(tmp_path, tmp_path / "example.py", installed=TUNERS) as program:
        program.finish()
    assert 0 <= float(program.said().split()[-1]) <= 1


@pytest.mark.parametrize("name", ["gsm8k", "npc_arena"])
def test_its_validation_passes(gateway: Served, tmp_path: Path, name: str) -> None:
    command = ("openenv", "validate", "--url", f"{gateway.url}{PREFIX}/{name}", "--timeout", 30)
    with running(tmp_path, *command, installed=TUNERS) as program:
        program.finish()
    assert program.said().splitlines()[-1] == "Verdict: PASS"
