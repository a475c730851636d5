"""A policy of mixed skill, with and without a target: groups that teach nothing, and what handing out a task costs.
`python -m benchmarks.difficulty [--record]` takes a minute and a half. All chance is seeded.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from pydantic import BaseModel, JsonValue

from app.cli.serve import tune_garbage_collection
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.runs import Policy
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Frozen, Split
from app.envs.tool_calling.environment import ToolCalling
from app.judges.panel import ConfiguredPanels
from app.main.gateway import build_gateway
from app.main.store import Store
from app.ports.environment import Environment, NoWorkers, Tools
from app.ports.retrieval import NoRetriever
from app.service.gateway import Gateway
from app.service.requests import GroupReply, GroupToScore, HandedOutTask, NextBatch, ScoreRequest, TaskSelection
from app.telemetry.metrics import NullObserver
from benchmarks.results import BenchmarkFigure, run, tell_progress
from tests.support.databases import MIGRATIONS

BATCH_SIZE = 32
GROUP_SIZE = 8
TARGET = 0.5

Beta = tuple[float, float]
HARD, MIXED, EASY = (0.5, 20.0), (2.0, 2.0), (30.0, 1.0)
"""How pass rates are spread over some of the tasks, or over those of a category."""

CATEGORIES: dict[str, Beta] = {
    "simple": EASY,
    "choice": EASY,
    "parallel": MIXED,
    "several": HARD,
    "irrelevance": HARD,
}
SPREAD: Sequence[Beta] = (HARD, HARD, HARD, HARD, EASY, EASY, EASY, MIXED, MIXED, MIXED)


class DrillParams(Frozen):
    tasks: int = 2_000


class Drills(Environment):
    """Finite, and nothing tells its tasks apart."""

    name: ClassVar[str] = "drills"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = DrillParams

    def size(self, split: Split, params: BaseModel) -> int:
        return DrillParams.model_validate(params.model_dump()).tasks

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content=f"{split} {index}"),), metadata={"index": index})

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(completion.text == "right") for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text="right")


@dataclass(frozen=True)
class Case:
    """`groups` that a run trains on."""

    environment: str
    params: dict[str, JsonValue]
    groups: int

    @property
    def name(self) -> str:
        told = f", {self.params['tasks']:,} tasks" if self.params else ", labelled, endless"
        return f"{self.environment}{told}, {self.groups:,} groups"


CASES = (
    Case("tool_calling", {}, 1_000),
    Case("drills", {"tasks": 2_000}, 4_000),
    Case("drills", {"tasks": 7_473}, 3_000),
    Case("drills", {"tasks": 7_473}, 8_000),
)


@dataclass(frozen=True)
class Trained:
    """`constant` says of each group, in order, whether all its rewards were the same."""

    constant: tuple[bool, ...]
    seconds: float
    """In `next-batch`."""

    @property
    def share(self) -> float:
        return sum(self.constant) / len(self.constant)

    @property
    def late_share(self) -> float:
        """Of the second half."""
        late = self.constant[len(self.constant) // 2 :]
        return sum(late) / len(late)

    @property
    def milliseconds_a_task(self) -> float:
        return self.seconds / len(self.constant) * 1e3


def measure() -> list[BenchmarkFigure]:
    tune_garbage_collection()  # as the service does it
    return [figure for case in CASES for figure in _compare(case)]


def _compare(case: Case) -> Iterator[BenchmarkFigure]:
    """Shares of groups whose rewards are all the same."""
    tell_progress(case.name)
    for what, select in (("uniform", TaskSelection()), (f"target {TARGET}", TaskSelection(target_pass_rate=TARGET))):
        trained = asyncio.run(_train(case, select))
        yield BenchmarkFigure.of(case.name, [trained.share], column=f"all the same, {what}")
        yield BenchmarkFigure.of(case.name, [trained.late_share], column=f"of the second half, {what}")
        yield BenchmarkFigure.of(case.name, [trained.milliseconds_a_task], "ms", column=f"a task handed out, {what}")


async def _train(case: Case, select: TaskSelection) -> Trained:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{folder}/store.db", MIGRATIONS)
        gateway = build_gateway(
            {kind.name: kind for kind in (Drills, ToolCalling)},
            store,
            ConfiguredPanels({}, {}, fallback=()),
            NoWorkers(),
            NoRetriever(),
            NullObserver(),
            lambda: datetime.now(UTC),
        )
        gateway.catalogue.open(ConfiguredDatasets({}))
        try:
            return await _trained(gateway, case, select)
        finally:
            await store.close()


async def _trained(gateway: Gateway, case: Case, select: TaskSelection) -> Trained:
    luck = random.Random(1)  # a policy, not a secret
    request = NextBatch(batch_size=BATCH_SIZE, run="bench", params=case.params, select=select)
    constant: list[bool] = []
    seconds = 0.0
    while len(constant) < case.groups:
        started = time.perf_counter()
        batch = await gateway.dispatcher.next_batch(case.environment, request)
        seconds += time.perf_counter() - started
        answers = tuple(_answered(gateway, case, task, luck) for task in batch.tasks)
        step = Policy(model="simulated", step=len(constant) // BATCH_SIZE)
        scored = await gateway.scoring.score(ScoreRequest(groups=answers, run="bench", policy=step), case.environment)
        constant += [isinstance(group, GroupReply) and group.std == 0.0 for group in scored.groups]
    return Trained(tuple(constant[: case.groups]), seconds)


def _answered(gateway: Gateway, case: Case, handed: HandedOutTask, luck: random.Random) -> GroupToScore:
    hosted = gateway.catalogue.get_environment_or_current(case.environment)
    index = handed.metadata["index"]
    assert isinstance(index, int)
    right = hosted.environment.gold(hosted.environment.task("train", index, hosted.validate_params(case.params)))
    assert right is not None
    skill = _skill(index, handed.metadata.get("category"))
    completions = tuple(right if luck.random() < skill else Completion(text="wrong") for _ in range(GROUP_SIZE))
    return GroupToScore(task_id=handed.task_id, lease_id=handed.lease_id, completions=completions)


def _skill(index: int, category: JsonValue) -> float:
    """The chance of a right answer: always the same for a task."""
    draws = random.Random(f"skill {index}")
    spread = CATEGORIES[category] if isinstance(category, str) else draws.choice(SPREAD)
    return draws.betavariate(*spread)


if __name__ == "__main__":
    run("difficulty", measure)
