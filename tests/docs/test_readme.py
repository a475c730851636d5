"""What the README and the first steps tell people to type works as it stands there, against a real gateway."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from app.cli.main import cli
from app.settings import PREFIX, read_settings
from tests.support.gateways import Gateways
from tests.support.serving import ROOT, Served
from tests.support.shell_blocks import list_shell_blocks, run_shell_blocks

pytestmark = pytest.mark.xdist_group("readme")

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_STEPS = (ROOT / "docs" / "first_steps.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of()


def test_the_first_steps_work_verbatim(gateway: Served, tmp_path: Path) -> None:
    envs, batch, scored, group = map(json.loads, run_shell_blocks(FIRST_STEPS, tmp_path, gateway.url))
    assert {"gsm8k", "npc_arena"} <= {one["name"] for one in envs["environments"] if one["available"]}
    (task,) = batch["tasks"]
    (reply,) = scored["groups"]
    good, bad = reply["rewards"]
    assert (reply["task_id"], reply["outcome"]) == (task["task_id"], "scored")
    assert good > bad == 0.0
    assert reply["scores"][1]["flags"] == ["breaks_character"]
    assert reply["scores"][0]["judges"] == ["offline"]
    assert group["reply"] == reply
    assert group["task"]["messages"] == task["messages"]
    assert {judgement["judge"] for judgement in group["judgements"]} == {"offline"}


def test_the_readme_works_verbatim_and_tells_the_reward(gateway: Served, tmp_path: Path) -> None:
    batch, scored = map(json.loads, run_shell_blocks(README, tmp_path, gateway.url))
    (reply,) = scored["groups"]
    told = re.findall(r"reply earns (?:about )?([\d.]*\d)", README)
    assert reply["task_id"] == batch["tasks"][0]["task_id"]
    assert [f"{reward:.2g}" for reward in reply["rewards"]] == told


@pytest.mark.parametrize("page", [README, FIRST_STEPS], ids=["readme", "first_steps"])
def test_the_curl_blocks_need_nothing_but_curl_and_the_shell(page: str) -> None:
    commands = re.findall(r"(?:^|[|(]\s*|&&\s*)([a-z]+[0-9]*)\b(?!=)", "\n".join(list_shell_blocks(page)), re.MULTILINE)
    assert set(commands) <= {"curl", "grep", "head", "tee"}


def commands(group: str) -> list[list[str]]:
    """What is shown of one group of our commands, as words behind the program's name."""
    shown = re.findall(rf"atropos-envs ({group} (?:.*\\\n)*.*)\n", FIRST_STEPS)
    return [shlex.split(command.replace("\\\n", " ")) for command in shown if "--" in command or group == "judges"]


def test_the_shown_character_can_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    (words,) = commands("sheets try")
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, [*words, "--json"])
    assert done.exit_code == 0, done.output
    good, dull, broken = [one["score"] for one in json.loads(done.stdout)["completions"]]
    assert good["reward"] > dull["reward"] > broken["reward"] == 0.0
    assert broken["flags"] == ["breaks_character"]


def test_the_shown_judge_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", FIRST_STEPS, re.DOTALL)
    (tmp_path / "gateway.yaml").write_text(shown, encoding="utf-8")
    monkeypatch.setenv(PREFIX + "SETTINGS", str(tmp_path / "gateway.yaml"))
    read = read_settings()
    datasets = {"gsm8k": {"default": {"source": "openai/gsm8k"}}}
    assert read.model_dump(mode="json", exclude_unset=True) == yaml.safe_load(shown) | {"datasets": datasets}
    (words,) = commands("judges")
    assert (words[:2], words[2] in read.judges) == (["judges", "check"], True)
    assert CliRunner().invoke(cli, [*words[:2], "--help"]).exit_code == 0


def test_the_commands_that_make_takes_are_the_ones_shown() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {name for path in ("README.md", "CONTRIBUTING.md") for name in _made(path)}
    assert {"run", "test"} <= shown <= targets


def _made(path: str) -> list[str]:
    return re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_loop_runs_and_learns_from_every_group(gateway: Served) -> None:
    command = [sys.executable, str(ROOT / "examples" / "loop.py"), gateway.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [re.fullmatch(r"(\d) (group_\w{8}) (\[.*?\]) (\[.*?\])", line) for line in done.stdout.splitlines()]
    seen = [(int(line[1]), json.loads(line[3]), json.loads(line[4])) for line in lines if line is not None]
    assert [step for step, _, _ in seen] == [0] * 4 + [1] * 4 + [2] * 4
    assert all(rewards[0] == 0.0 < max(rewards) for _, rewards, _ in seen)
    assert all(advantages[0] == min(advantages) < 0 for _, _, advantages in seen)
    assert len({line[2] for line in lines if line is not None}) == 12


def test_the_shell_scores_a_leased_task(gateway: Served) -> None:
    answers = ("Hm. Sit down, and tell me first who sent you.", "As an AI language model, I am happy to help!")
    line = ["sh", str(ROOT / "examples" / "curl.sh"), gateway.url, "npc_arena", *answers]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    batch, rewards = done.stdout.splitlines()
    (task,) = json.loads(batch)["tasks"]
    (listed,) = httpx.get(f"{gateway.url}/groups", params={"run": "curl"}).json()["groups"]
    group = httpx.get(f"{gateway.url}/groups/{listed['group_id']}").json()["group"]
    said = [(one["completion"]["text"], one["score"]["reward"]) for one in group["rollouts"]]
    told = json.loads("{" + rewards + "}")["rewards"]
    assert (group["task_id"], said, told[1]) == (task["task_id"], [*zip(answers, told, strict=True)], 0.0)
