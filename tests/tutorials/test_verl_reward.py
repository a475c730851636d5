"""examples/verl_reward.py, called as verl's naive reward manager calls it: a coroutine for each answer, by keywords."""

import asyncio
import importlib.util
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.values import Split
from app.features.exports.commands import tasks as write_tasks
from tests.support.gateways import Gateways
from tests.support.local_tokenizer import saved_tokenizer
from tests.support.serving import ROOT, Served, free_port, serving

Score = Callable[..., Awaitable[dict[str, Any]]]
KEY = "a key of the tests"


def compute_score() -> Score:
    """As verl loads it: a file by its path."""
    spec = importlib.util.spec_from_file_location("custom_module", ROOT / "examples" / "verl_reward.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Score = module.compute_score
    assert inspect.iscoroutinefunction(found)
    return found


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of(ATROPOS_ENVS_API_KEY=KEY)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_ENVS_API_KEY", KEY)


def rows(url: str, folder: Path, environment: str, split: Split = "train") -> list[dict[str, Any]]:
    file = folder / "rows.jsonl"
    write_tasks(file, env=[environment], trainer="verl", split=split, count=2, url=url, api_key=KEY)
    return [json.loads(line) for line in file.read_text().splitlines()]


async def rewarded(url: str, row: dict[str, Any], answers: Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """All at once, as the answers of one prompt come in."""
    score = compute_score()
    calls = [
        score(
            data_source=row["data_source"],
            solution_str=answer,
            ground_truth=row["reward_model"]["ground_truth"],
            extra_info={**row["extra_info"], "num_turns": 2, "rollout_reward_scores": {}},
            gateway=url,
            **options,
        )
        for answer in answers
    ]
    return await asyncio.gather(*calls)


def stored(url: str, group: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/groups/{group}", headers={"Authorization": f"Bearer {KEY}"}).json()
    return found


def test_answers_of_a_prompt_are_judged_together(gateway: Served, tmp_path: Path) -> None:
    row, _ = rows(gateway.url, tmp_path, "npc_arena")
    answers = ["Sit down. Tell me who sent you.", "As an AI language model, I can help!", "Hm.", "Hm."]
    told = asyncio.run(rewarded(gateway.url, row, answers, run="npcs", group_size=4))
    group = stored(gateway.url, told[0]["group_id"])["group"]
    kept = {one["completion"]["text"]: one["score"]["reward"] for one in group["rollouts"]}
    assert [one["score"] for one in told] == [kept[answer] for answer in answers]
    assert (len({one["group_id"] for one in told}), len(group["rollouts"]), group["run"]) == (1, 4, "npcs")
    assert [[*one] for one in told] == [["score", "absolute", "group_id"]] * 4


def test_an_answer_of_as_many_tokens_as_there_may_be_was_cut_off(gateway: Served, tmp_path: Path) -> None:
    row, _ = rows(gateway.url, tmp_path, "npc_arena")
    limit = {"tokenizer": str(saved_tokenizer(tmp_path / "model")), "max_response_tokens": 8}
    told = asyncio.run(rewarded(gateway.url, row, ["Sit, now", "Sit now"], group_size=2, **limit))
    kept = stored(gateway.url, told[0]["group_id"])["group"]["rollouts"]
    assert sorted((one["completion"]["text"], one["score"]["flags"] == ["truncated"]) for one in kept) == [
        ("Sit now", False),
        ("Sit, now", True),
    ]


def test_without_a_size_an_answer_is_scored_by_itself_and_what_is_held_out_is_an_evaluation(
    gateway: Served, tmp_path: Path
) -> None:
    row, _ = rows(gateway.url, tmp_path, "countdown", "test")
    one, other = asyncio.run(rewarded(gateway.url, row, ["<answer>1</answer>", "I do not know."]))
    assert (one["score"], other["absolute"], one["group_id"] != other["group_id"]) == (0.0, 0.0, True)
    assert stored(gateway.url, one["group_id"])["group"]["purpose"] == "eval"


@pytest.mark.slow
def test_a_gateway_that_starts_later_is_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path, settings={"ATROPOS_ENVS_API_KEY": KEY}) as served:
        row, _ = rows(served.url, tmp_path, "countdown")
    port = free_port()

    async def awaited() -> list[dict[str, Any]]:
        asking = asyncio.ensure_future(rewarded(f"http://127.0.0.1:{port}", row, ["4"]))
        await asyncio.sleep(1)
        with serving(tmp_path, port=port, settings={"ATROPOS_ENVS_API_KEY": KEY}):
            return await asking

    assert [one["score"] for one in asyncio.run(awaited())] == [0.0]


def test_what_will_never_be_scored_stops_the_training(gateway: Served, tmp_path: Path) -> None:
    row, _ = rows(gateway.url, tmp_path, "countdown")
    with pytest.raises(ValueError, match="answers 404"):
        asyncio.run(rewarded(gateway.url, {**row, "data_source": "chess"}, ["4"]))
    with pytest.raises(RuntimeError, match="does not answer"):
        asyncio.run(rewarded("http://127.0.0.1:9", row, ["4"], patience_seconds=0))
