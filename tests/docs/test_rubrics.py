"""What docs/rubrics.md tells people to type works as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from app.domain.judging import Bound, ClaimRule, OwnCriterion, OwnDefect, OwnRubric, Requirement
from tests.support.serving import ROOT, serving

PAGE = (ROOT / "docs" / "rubrics.md").read_text(encoding="utf-8")
SHOWN = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run_script(script: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-c", f"set -euo pipefail\n{script}"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_and_settings_work_verbatim(tmp_path: Path) -> None:
    writing, using = blocks("sh")
    (settings,) = blocks("yaml")
    (rescoring,) = re.findall(r"```\n(atropos-envs rescore .*)\n```", PAGE)
    run_script(writing, tmp_path)
    (tmp_path / "gateway.yaml").write_text(settings, encoding="utf-8")
    with serving(tmp_path) as gateway:
        script = f"{using}echo; echo ----\n{rescoring} --json --url {SHOWN}"
        said = run_script(script.replace(SHOWN, gateway.url), tmp_path)
    run, rescored = (json.loads(part) for part in said.split("----"))
    assert (run["options"]["rubric"]["name"], rescored["groups"]) == ("npc_arena", 0)


def test_every_key_is_told() -> None:
    models = (OwnRubric, OwnCriterion, OwnDefect, Requirement, Bound, ClaimRule)
    keys = {name for model in models[:3] for name in model.model_fields}
    assert sorted(key for key in keys if not re.search(rf"`[\w\[\]., `]*\b{key}\b", PAGE)) == []
