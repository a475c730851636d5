"""Prompt data sets from a gateway in a process of its own: the command, and the file as `datasets` reads it."""

import json
from pathlib import Path
from typing import Any

import datasets
import httpx
import pytest

from app.domain.values import Frozen
from tests.support.commands import Ended, ended
from tests.support.serving import Served
from tests.support.tables import read_table


class Tables(Frozen):
    columns: tuple[tuple[str, str, str], ...]
    whole: tuple[tuple[tuple[str, ...], int | None], ...]
    wrong: tuple[tuple[tuple[str, ...], str], ...]


TABLES = read_table(__file__, "tasks.yaml", Tables)


def command(*arguments: str | Path, url: str) -> Ended:
    return ended("tasks", *arguments, "--url", url)


def handed_out(url: str, environment: str, **asked: Any) -> list[dict[str, Any]]:
    reply = httpx.post(f"{url}/envs/{environment}/next-batch", json=asked)
    tasks: list[dict[str, Any]] = reply.raise_for_status().json()["tasks"]
    return tasks


def columns(trainer: str, task: dict[str, Any], split: str, index: int) -> dict[str, Any]:
    """What a row must be, by the trainer's own documentation."""
    prompt, purpose = task["messages"], "eval" if split == "test" else "train"
    label = {"task_id": task["task_id"], "purpose": purpose}
    text = json.dumps(label, separators=(",", ":")) if purpose == "eval" else task["task_id"]
    tools = json.dumps(task["tools"], separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    match trainer:
        case "trl":
            about = {"environment": task["environment"], "max_turns": task["max_turns"]}
            return {"prompt": prompt, **label, **about, "tools": tools}
        case "openrlhf":
            return {"prompt": prompt, "label": text}
        case "slime":
            return {"prompt": prompt, "label": label, "tools": tools}
        case "openrlhf_agent":
            return {"prompt": prompt, "label": json.dumps(episode(task, split), separators=(",", ":"))}
        case "slime_agent":
            return {"prompt": prompt, "tools": tools, "metadata": episode(task, split)}
        case "nemo_gym":
            flat = [{"type": "function", "strict": False, **tool["function"]} for tool in task["tools"]]
            agent = {"type": "responses_api_agents", "name": f"{task['environment']}_simple_agent"}
            params = {"input": prompt, "tools": flat}
            return {"responses_create_params": params, **label, "environment": task["environment"], "agent_ref": agent}
    row = {
        "data_source": task["environment"],
        "prompt": prompt,
        "ability": task["environment"],
        "reward_model": {"style": "rule", "ground_truth": text},
        "extra_info": {"split": split, "index": index, "environment": task["environment"]},
    }
    turns = {"agent_name": "gateway", **label, "max_turns": task["max_turns"], "tools": tools}
    return row if trainer == "verl" else row | turns


def episode(task: dict[str, Any], split: str) -> dict[str, Any]:
    """What the agent loops of the examples read."""
    purpose = "eval" if split == "test" else "train"
    known = {"task_id": task["task_id"], "environment": task["environment"], "purpose": purpose}
    return {**known, "max_turns": task["max_turns"]}


@pytest.mark.parametrize(("trainer", "suffix", "split"), TABLES.columns)
def test_rows_are_tasks_in_the_trainers_columns(
    served: Served, tmp_path: Path, trainer: str, suffix: str, split: str
) -> None:
    file = tmp_path / f"rows.{suffix}"
    options = ("--env", "countdown", "--split", split, "--first", "3", "--count", "5", "--params", '{"level": "easy"}')
    done = command(file, "--for", trainer, *options, url=served.url)
    assert done.returncode == 0, done.stderr
    kind = "json" if suffix == "jsonl" else "parquet"
    loaded = datasets.load_dataset(kind, data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    rows = [{name: _plain(value) for name, value in row.items()} for row in loaded]
    tasks = handed_out(served.url, "countdown", batch_size=5, cursor=3, split=split, params={"level": "easy"})
    assert rows == [columns(trainer, task, split, index) for index, task in enumerate(tasks, start=3)]


def _plain(value: Any) -> Any:
    """Without the nulls that Parquet has for absent parts."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("environment", "trainer"), read_table(__file__, "tools.yaml", list[tuple[str, str]]))
def test_tools_are_beside_the_prompt(served: Served, tmp_path: Path, environment: str, trainer: str) -> None:
    """Episodes with tools are for agent loops."""
    file = tmp_path / "rows.jsonl"
    done = command(file, "--for", trainer, "--env", environment, "--count", "3", url=served.url)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    tasks = handed_out(served.url, environment, batch_size=3, cursor=0)
    assert (done.returncode, rows) == (0, [columns(trainer, task, "train", at) for at, task in enumerate(tasks)])


@pytest.mark.parametrize(("arguments", "rows"), TABLES.whole)
def test_a_split_with_an_end_is_written_to_its_end(
    served: Served, tmp_path: Path, arguments: tuple[str, ...], rows: int
) -> None:
    """Each task once, also where params decide how many there are."""
    file = tmp_path / "rows.jsonl"
    done = command(file, *arguments, url=f"{served.url}/")
    found = [json.loads(line)["task_id"] for line in file.read_text().splitlines()]
    said = f"{len(found):,} tasks of {arguments[1]}" in done.stderr
    assert (done.returncode, len(found), said) == (0, rows or len({*found}), True)


def test_what_was_written_can_be_scored_and_nothing_is_leased(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    command(file, "--for", "openrlhf", "--env", "countdown", "--count", "1", url=served.url)
    task = json.loads(file.read_text())["label"]
    body = {"groups": [{"task_id": task, "completions": [{"text": "<answer>1</answer>"}]}], "run": "elsewhere"}
    reply = httpx.post(f"{served.url}/envs/countdown/score", json=body).json()
    leased = handed_out(served.url, "countdown", batch_size=1, run="somebody")
    assert (reply["groups"][0]["outcome"], leased[0]["lease_id"] is not None) == ("scored", True)


@pytest.mark.parametrize(("arguments", "said"), TABLES.wrong)
def test_what_cannot_be_written_is_said(served: Served, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = command(tmp_path / arguments[0], *arguments[1:], url=served.url)
    assert (done.returncode, said in done.stderr, [*tmp_path.iterdir()]) == (1, True, []), done.stderr
