"""A small store as a gateway writes it: groups of several runs and environments, with all that comes with them.

`benchmarks.grown_stores` grows it by copies of its rows, so that whatever a row holds was written by the service.
"""

import itertools
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from pydantic import JsonValue

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion
from app.main.components import discover
from app.ports.environment import Environment
from tests.support.serving import serving

GROUP_SIZE: Final = 8
STEPS: Final = 10
ARENA: Final = "npc_arena"
LONG_RUN: Final = "long"
"""A third of all groups: of one environment that is checked by code."""
ARENA_RUN: Final = "arena"
MIXED_RUN: Final = "mixed"
GROUPS_A_STEP: Final = (
    *((LONG_RUN, "gsm8k", 12), (ARENA_RUN, ARENA, 8)),
    *((MIXED_RUN, "gsm8k", 4), (MIXED_RUN, "mcqa", 4), (MIXED_RUN, ARENA, 4)),
    *(("words", "letter_counting", 4), ("words", "date_arithmetic", 4)),
)
"""Run, environment, and how many groups of each step."""
GROUPS_BESIDE: Final = 20
"""Of each kind: without a run, of evaluations, in pieces."""
SEEDED: Final = GROUP_SIZE * (STEPS * sum(groups for _, _, groups in GROUPS_A_STEP) + 3 * GROUPS_BESIDE)
"""Rollouts of a small store."""
_SENTENCES: Final = (
    *("The road north is closed until the thaw.", "I sold the last of the rope this morning.", "Keep your voice down."),
    *("My brother would know more of that than I do.", "Nobody has come through here since market day.", "Sit, then."),
    *("You smell of the river, stranger.", "I have no quarrel with the guild.", "Ask again when the bells are done."),
)


class Trainer:
    """Takes tasks and has their groups scored, as a trainer does. What its policy says is the right answer or none, by
    the luck of `chance`."""

    def __init__(self, client: httpx.Client, seed: int) -> None:
        self.client = client
        self.chance = random.Random(seed)
        self._environments: dict[str, Environment] = {}

    def train(self, environment: str, groups: int, run: str | None = None, step: int = 0) -> None:
        self._answer_all(environment, self.take(environment, run=run, batch_size=groups), run, step)

    def evaluate(self, environment: str, groups: int) -> None:
        tasks = self.take(environment, run=LONG_RUN, batch_size=groups, purpose="eval", cursor=0, split="test")
        self._answer_all(environment, tasks, LONG_RUN, STEPS - 1, purpose="eval")

    def score_in_pieces(self, run: str, environment: str, groups: int) -> None:
        for number, task in enumerate(self.take(environment, run=run, batch_size=groups)):
            for place, completion in enumerate(self.answer(environment, task["task_id"])):
                part = {"key": f"piece-{number}", "index": place, "size": GROUP_SIZE}
                group = {"task_id": task["task_id"], "completions": [completion], "part": part}
                self.score(environment, group, run, wait_seconds=0)

    def take(self, environment: str, **wanted: JsonValue) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = self.post(f"/envs/{environment}/next-batch", wanted)["tasks"]
        return tasks

    def answer(self, environment: str, task_id: str) -> list[dict[str, JsonValue]]:
        if environment == ARENA:
            return [{"text": " ".join(self.chance.sample(_SENTENCES, 3))} for _ in range(GROUP_SIZE)]
        gold = self._find_gold(environment, task_id)
        wrong = "I am not sure about this one."
        said = (gold.text or "" if self.chance.random() < 0.6 else wrong for _ in range(GROUP_SIZE))
        return [{"text": f"{text}\n"[: -1 if place % 2 else None]} for place, text in enumerate(said)]

    def score(
        self, environment: str, group: object, run: str | None, step: int = 0, key: str = "", **more: Any
    ) -> None:
        body = {"groups": [group], "run": run, "policy": {"model": "bench", "step": step}, **more}
        self.post(f"/envs/{environment}/score", body, {"Idempotency-Key": key} if key else {})

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Any:
        reply = self.client.post(path, json=body, headers=headers, timeout=120)
        if not reply.is_success:
            raise RuntimeError(f"{path}: {reply.status_code} {reply.text[:300]}")
        return reply.json()

    def _answer_all(
        self, environment: str, tasks: Sequence[dict[str, Any]], run: str | None, step: int, **more: str
    ) -> None:
        for task in tasks:
            group = build_group(task, self.answer(environment, task["task_id"]))
            self.score(environment, group, run, step, f"{task['task_id']}.{run}.{step}", **more)

    def _find_gold(self, environment: str, task_id: str) -> Completion:
        if environment not in self._environments:
            self._environments[environment] = discover()[environment].open(ConfiguredDatasets({}))
        opened = self._environments[environment]
        told = self.client.get(f"/tasks/{task_id}").raise_for_status().json()
        gold = opened.gold(opened.task(told["split"], told["index"], opened.Params(**told["params"])))
        assert gold is not None
        return gold


def build_group(task: Mapping[str, Any], said: Sequence[Mapping[str, JsonValue]]) -> dict[str, Any]:
    """Of a task that was leased."""
    return {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": said}


def seed(folder: Path, url: str, steps: int = STEPS) -> None:
    """Fills a migrated store; `folder` is for the gateway's log."""
    settings = {"ATROPOS_ENVS_DATABASE_URL": url}
    with (
        serving(folder, settings=settings, python=sys.executable) as gateway,
        httpx.Client(base_url=gateway.url) as client,
    ):
        trainer = Trainer(client, 1)
        for step, (run, environment, groups) in itertools.product(range(steps), GROUPS_A_STEP):
            trainer.train(environment, groups, run, step)
        trainer.evaluate("gsm8k", GROUPS_BESIDE)
        trainer.train("gsm8k", GROUPS_BESIDE)
        trainer.score_in_pieces("pieces", "gsm8k", GROUPS_BESIDE)
