"""What docs/rlaif.md tells people to type works as it stands there, against a real gateway and a judge that counts."""

import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.testing import CliRunner

from app.cli.main import cli
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Message
from app.domain.values import Split
from app.envs.rlaif.environment import ConversationRow, Rlaif, RlaifParams, Speaker
from app.settings import PREFIX, read_settings
from tests.support.chat_server import serving as judge_serving
from tests.support.preferring import preferring
from tests.support.serving import ROOT, serving

PAGE = (ROOT / "docs" / "rlaif.md").read_text(encoding="utf-8")
SHOWN = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def group_of(reply: Mapping[str, object]) -> Mapping[str, object]:
    groups = reply["groups"]
    assert isinstance(groups, list)
    (group,) = groups
    assert isinstance(group, dict)
    return group


def test_the_commands_work_verbatim(tmp_path: Path) -> None:
    separator = "\necho; echo ----\n"
    with judge_serving(preferring) as judge:
        settings = {
            "judges": {"counting": {"base_url": judge.url, "model": "counter", "temperature": 0.7}},
            "environments": {"rlaif": {"judges": ["counting"]}},
        }
        (tmp_path / "gateway.yaml").write_text(json.dumps(settings), encoding="utf-8")
        with serving(tmp_path) as gateway:
            script = "set -euo pipefail\n" + separator.join(blocks("sh")).replace(SHOWN, gateway.url)
            done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        calls = len(judge.received)
    assert done.returncode == 0, done.stderr
    batch, scored, trial, run, pairs = (json.loads(part) for part in done.stdout.split("----"))
    (task,) = batch["tasks"]
    assert "fewer words" not in json.dumps(task)
    assert (group_of(scored)["task_id"], group_of(scored)["rewards"]) == (task["task_id"], [0.0, 1.0, 4 / 7])
    assert [one["score"]["reward"] for one in trial["completions"]] == [0.0, 1.0]
    assert run["options"] == {
        "mode": "pairwise",
        "votes": 3,
        "readings": None,
        "judges": [],
        "relative_weight": None,
        "on_truncated": "zero",
    }
    assert (group_of(pairs)["rewards"], calls) == ([0.0, 1.0], 2 + 2 + 6)


def test_the_commands_need_nothing_but_curl_and_the_shell() -> None:
    commands = re.findall(r"(?:^|[|(]\s*|&&\s*)([a-z]+[0-9]*)\b(?!=)", "\n".join(blocks("sh")), re.MULTILINE)
    assert set(commands) <= {"curl", "grep", "head", "tee"}


def test_the_shown_params_are_params() -> None:
    (shown,) = blocks("json")
    assert [(one.name, one.weight) for one in RlaifParams.model_validate_json(shown).rubric] == [
        ("brevity", 3.0),
        ("warmth", 1.0),
    ]


def test_the_shown_settings_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = blocks("yaml")
    file = tmp_path / "gateway.yaml"
    file.write_text(shown, encoding="utf-8")
    monkeypatch.setenv(PREFIX + "SETTINGS", str(file))
    datasets = {"rlaif": {"default": {"source": "my-conversations"}}}
    assert read_settings().model_dump(exclude_unset=True) == yaml.safe_load(shown) | {"datasets": datasets}


def test_the_shown_selection_selects() -> None:
    (shown,) = re.findall(r'`(\{"select": .*?\})`', PAGE)
    wanted = json.loads(shown)["select"]
    environment = Rlaif.open(ConfiguredDatasets({}))
    size = environment.size("train", RlaifParams()) or 0
    tasks = [environment.task("train", index, RlaifParams()) for index in range(size)]
    chosen = [task for task in tasks if all(task.metadata[key] in values for key, values in wanted.items())]
    assert {task.metadata["topic"] for task in chosen} == set(wanted["topic"])


def test_the_page_counts_right() -> None:
    environment = Rlaif.open(ConfiguredDatasets({}))
    splits: tuple[Split, ...] = get_args(Split)
    tasks = [
        environment.task(split, index, RlaifParams())
        for split in splits
        for index in range(environment.size(split, RlaifParams()) or 0)
    ]
    several = sum(len(task.messages) > 1 for task in tasks)
    languages = {task.metadata["language"] for task in tasks}
    assert (round(len(tasks), -1), len(languages), round(len(tasks) / several)) == (320, 8, 7)


def test_the_shown_columns_and_roles_are_those_that_are_read() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert {name for name, _ in rows} == set(ConversationRow.model_fields) - {"topic"}
    roles = [role for _, told in rows for role in re.findall(r"`(\w+)`", told)]
    read = [
        ConversationRow.model_validate({"messages": [{"role": role, "content": "a"}, {"role": "user", "content": "b"}]})
        for role in [*roles, "human"]
    ]
    assert {row.conversation[0].role for row in read} == set(get_args(Speaker))
    assert all(row.conversation[-1] == Message(role="user", content="b") for row in read)


def test_the_shown_command_is_one_of_ours() -> None:
    (shown,) = re.findall(r"```\natropos-envs (.*)\n```", PAGE)
    words = shlex.split(shown)
    helped = CliRunner().invoke(cli, [*words[:2], "--help"], env={"COLUMNS": "200"})
    assert (words[:2], helped.exit_code) == (["rlaif", "rubric"], 0)
    assert [word in helped.stdout for word in words if word.startswith("--")] == [True, True]
