"""What README, first steps and guides tell people to type works as it stands there, against real gateways."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.worlds import RetrievalExplanation, World
from app.features.worlds.service import GameContext
from app.service.requests import TaskBatch
from tests.support.chat_server import ChatServer, Received, Reply
from tests.support.chat_server import serving as model_serving
from tests.support.gateways import Gateways
from tests.support.preferring import preferring
from tests.support.serving import ROOT, Served, serving
from tests.support.shell_blocks import list_blocks, run_shell, run_shell_blocks
from tests.support.tables import read_table

pytestmark = pytest.mark.xdist_group("pages")

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_STEPS, JUDGING, RLAIF, RUBRICS, TALK, TOOL_CALLING, WORLDS = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("first_steps", "judging", "rlaif", "rubrics", "talk", "tool_calling", "worlds")
)


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    """Without any settings."""
    return gateways.of()


@dataclass(frozen=True)
class Configured:
    """A gateway with the settings of the pages on judges, rubrics and tool calling, and the folder that they are in."""

    folder: Path
    url: str
    judge: ChatServer


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    folder = tmp_path_factory.mktemp("configured")
    run_shell(list_blocks(RUBRICS)[0] + list_blocks(TOOL_CALLING)[0], folder)
    ((variable, place),) = re.findall(r"^(ATROPOS_ENVS_DATASETS__TOOL_CALLING)=(\S+) make run$", TOOL_CALLING, re.M)
    settings, rubric = (yaml.safe_load(list_blocks(page, "yaml")[0]) for page in (JUDGING, RUBRICS))
    settings["environments"]["npc_arena"] |= rubric["environments"]["npc_arena"]
    with model_serving(preferring) as judge:
        for one in settings["judges"].values():
            one |= {"base_url": judge.url, "temperature": 0.7}  # which votes need, as the page on preferences says
        (folder / "gateway.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        with serving(folder, settings={variable: place, "JUDGE_API_KEY": "a-key"}) as served:
            yield Configured(folder, served.url, judge)


def needs_no_python(page: str) -> bool:
    commands = re.findall(r"(?:^|[|(]\s*|&&\s*)([a-z]+[0-9]*)\b(?!=)", "\n".join(list_blocks(page)), re.MULTILINE)
    return set(commands) <= {"curl", "grep", "head", "tee"}


def test_the_first_steps(gateway: Served, tmp_path: Path) -> None:
    envs, batch, scored, group = map(json.loads, run_shell_blocks(FIRST_STEPS, tmp_path, gateway.url))
    (task,), (reply,) = batch["tasks"], scored["groups"]
    good, bad = reply["scores"]
    assert {"gsm8k", "npc_arena"} <= {one["name"] for one in envs["environments"] if one["available"]}
    assert (reply["task_id"], reply["outcome"], bad["flags"], good["judges"]) == (
        task["task_id"],
        "scored",
        ["breaks_character"],
        ["offline"],
    )
    assert good["reward"] > bad["reward"] == 0.0
    assert (group["reply"], group["task"]["messages"]) == (reply, task["messages"])
    assert {judgement["judge"] for judgement in group["judgements"]} == {"offline"}
    assert needs_no_python(FIRST_STEPS)


def test_the_readme_shows_what_its_first_command_prints(gateway: Served) -> None:
    (command,) = re.findall(r"atropos-envs (try npc_arena (?:.*\\\n)*.*)\n", README)
    (shown,) = re.findall(r"```\n(user: That goose.*?)```", README, re.DOTALL)
    ran = CliRunner().invoke(cli, [*shlex.split(command.replace("\\\n", " ")), "--url", gateway.url])
    assert (ran.exit_code, [line for line in shown.splitlines() if line not in ran.stdout.splitlines()]) == (0, [])


def test_the_character_of_the_first_steps_can_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = re.findall(r"atropos-envs (sheets try (?:.*\\\n)*.*)\n", FIRST_STEPS)
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, f"{shown} --json".replace("\\\n", " "))
    assert done.exit_code == 0, done.output
    good, dull, broken = [one["score"] for one in json.loads(done.stdout)["completions"]]
    assert good["reward"] > dull["reward"] > broken["reward"] == 0.0


def test_a_character_answers_on_a_fresh_service(gateway: Served, tmp_path: Path) -> None:
    told, _ = run_shell_blocks(TALK, tmp_path, gateway.url)  # the second one needs a world
    events = [json.loads(line.removeprefix("data: ")) for line in told.splitlines() if line.startswith("data: {")]
    said = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    assert said.endswith("(stand-in)"), told


def test_the_loop_learns_from_every_group(gateway: Served) -> None:
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


def test_a_judge_is_set_up_and_a_group_scored_anew(configured: Configured) -> None:
    before = len(configured.judge.received)
    listed, scored = map(json.loads, run_shell_blocks(JUDGING, configured.folder, configured.url))
    asked = {(one.authorization, one.body["model"]) for one in configured.judge.received[before:]}
    assert {one["name"]: (one["environments"], one["for_training"]) for one in listed["judges"]} == {
        "offline": ([], False),
        "careful": (["npc_arena", "rlaif"], True),
        "plain": ([], True),
    }
    assert (scored["scoring"]["judges"], scored["scoring"]["outcome"]) == (["offline"], "scored")
    assert (scored["original"], scored["rewards"][0] > scored["rewards"][1]) == ([0.5, 0.5], True)
    assert asked == {("Bearer a-key", "the-judge-model")}


def group_of(reply: Mapping[str, Any]) -> Any:
    (group,) = reply["groups"]
    return group


def test_a_preference_is_what_judges_score_by(configured: Configured) -> None:
    before = len(configured.judge.received)
    printed = run_shell_blocks(RLAIF, configured.folder, configured.url)
    batch, scored, trial, run, pairs = map(json.loads, printed)
    (task,) = batch["tasks"]
    calls = len(configured.judge.received) - before
    assert ("fewer words" in json.dumps(task), needs_no_python(RLAIF)) == (False, True)
    assert (group_of(scored)["task_id"], group_of(scored)["rewards"]) == (task["task_id"], [0.0, 1.0, 4 / 7])
    assert [one["score"]["reward"] for one in trial["completions"]] == [0.0, 1.0]
    assert (run["options"]["mode"], run["options"]["votes"]) == ("pairwise", 3)
    assert (group_of(pairs)["rewards"], calls) == ([0.0, 1.0], 2 + 2 + 6)


def test_a_rubric_of_ones_own_is_used_by_a_run(configured: Configured) -> None:
    _, using = list_blocks(RUBRICS)
    (rescoring,) = re.findall(r"```\n(atropos-envs rescore .*)\n```", RUBRICS)
    script = f"```sh\n{using}```\n```sh\n{rescoring} --json --url {configured.url}\n```"
    run, rescored = map(json.loads, run_shell_blocks(script, configured.folder, configured.url))
    assert (run["options"]["rubric"]["name"], rescored["groups"]) == ("npc_arena", 0)


def test_tools_are_called_and_rendered(configured: Configured) -> None:
    commands = TOOL_CALLING.replace(list_blocks(TOOL_CALLING)[0], "echo\n")
    _, batch, scored, rendered = run_shell_blocks(commands, configured.folder, configured.url)
    tasks, shown = (json.loads(one)["tasks"] for one in (batch, rendered))
    assert [task["metadata"]["category"] for task in tasks] == ["simple"]
    assert group_of(json.loads(scored))["rewards"] == [1.0, 1.0, 0.0, 0.0]
    assert [(task["tools"], "get_forecast" in task["messages"][0]["content"]) for task in shown] == [([], True)]


def test_a_world_is_told_played_branched_and_closed(tmp_path: Path) -> None:
    """At a gateway of its own: the examples of the API's document tell the world of this name too."""

    def answer(_: int, received: Received) -> Reply:
        """As many words as the conversation has messages."""
        said = " ".join(["Aye."] * len(received.messages))
        return Reply(json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode())

    with model_serving(answer) as model, serving(tmp_path) as gateway:
        printed = run_shell_blocks(WORLDS, ROOT, gateway.url, also={"http://127.0.0.1:9000/v1": model.url})
    new, explained, context, played, batch, branch, corrected, withdrawn, lorebook, closed = printed
    explanation = RetrievalExplanation.model_validate_json(explained)
    game = GameContext.model_validate_json(context)
    prompt = game.messages[0].content or ""
    tasks = TaskBatch.model_validate_json(batch).tasks
    branched, ended = World.model_validate_json(branch), World.model_validate_json(closed)
    kept, lore = lorebook.strip().split("}{", 1)
    (active,) = RetrievalExplanation.model_validate_json("{" + lore).lore
    assert [json.loads(one) for one in (new, corrected, withdrawn)] == [
        {"new": 4, "known": 0},
        {"corrected": "tax"},
        {"withdrawn": "tax"},
    ]
    assert [one.event.id for one in explanation.events if one.told] == ["rope", "tax"]
    assert {(one.event.id, one.reason) for one in explanation.hidden} == {
        ("bridge", "not_visible"),
        ("spliced", "future"),
    }
    assert [passage.id for passage in game.passages] == ["rope", "tax"]
    assert ("Maren" in prompt, "spliced and holds" in prompt, "toll bridge" in context) == (True, False, False)
    assert [line.strip() for line in played.strip().splitlines()] == read_table(__file__, "world_said.yaml", list[str])
    assert ["broke at Reedgate" in (task.messages[0].content or "") for task in tasks] == [True, True]
    assert {task.metadata["character"] for task in tasks} == {"hob_tarrant"}
    assert (branched.name, branched.parent, branched.newest) == (
        "drowned_coast-2",
        "drowned_coast",
        datetime(1312, 4, 3, 9, 15, tzinfo=UTC),
    )
    assert (json.loads(kept + "}"), active.entry) == ({"name": "coast", "entries": 2, "read_as": None}, "levy")
    assert (ended.name, ended.closed_at is None) == ("drowned_coast-2", False)
