"""The specification of an evaluation, resolved against the gateway: environment, run, tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from app.cli.evaluate.ledger import EvaluationJournalSetup
from app.cli.gateway_client import GatewayClient
from app.domain.errors import InvalidRequest
from app.domain.runs import Run
from app.domain.values import Split
from app.http.api.models import EnvironmentInfo, JudgeInfo
from app.inference.server import SamplingParameters
from app.service.request_models import HandedOutTask
from app.service.run_registry import RunSettings

ENDLESS: Final = 100
"""Default number of tasks of an endless split."""
A_BATCH: Final = 256


@dataclass(frozen=True)
class EvaluationSpec:
    environment: str
    split: Split
    params: dict[str, JsonValue]
    tasks: int | None
    samples: int
    run: str
    model: str
    step: int | None
    seed: int
    sampling: SamplingParameters

    def build_setup(self, environment: EnvironmentInfo, tasks: int) -> EvaluationJournalSetup:
        return EvaluationJournalSetup(
            environment=environment.name,
            version=environment.version,
            split=self.split,
            params=self.params,
            run=self.run,
            model=self.model,
            step=self.step,
            tasks=tasks,
            samples=self.samples,
            seed=self.seed,
            sampling=self.sampling.parameters,
        )


@dataclass(frozen=True)
class EvaluationContext:
    """The gateway's environment, judges and tasks for this evaluation."""

    environment: EnvironmentInfo
    judges: tuple[JudgeInfo, ...]
    version: str
    tasks: tuple[HandedOutTask, ...]
    since: datetime | None
    """When the run started, which fixes retrieved contexts and characters; None for a dry run."""


async def ensure_run(gateway: GatewayClient, wanted: EvaluationSpec) -> Run:
    """Gets or creates the run, whose seed fixes the order of tasks."""
    return await gateway.fetch_run(wanted.run) or await gateway.put_run(wanted.run, RunSettings(seed=wanted.seed))


async def fetch_tasks(
    gateway: GatewayClient, environment: EnvironmentInfo, wanted: EvaluationSpec, run: str | None
) -> tuple[HandedOutTask, ...]:
    """Distinct tasks in the run's order; fewer in a smaller split. Without a run the gateway records nothing."""
    size = next((split.size for split in environment.splits if split.name == wanted.split), None)
    most = _find_task_limit(wanted, size)
    found: dict[str, HandedOutTask] = {}
    cursor: int | None = 0
    while cursor is not None and (most is None or len(found) < most):
        ask: dict[str, JsonValue] = {
            "split": wanted.split,
            "params": wanted.params,
            "run": run,
            "purpose": "eval",
            "cursor": cursor,
            "batch_size": A_BATCH if most is None else min(A_BATCH, most - len(found)),
        }
        batch = await gateway.fetch_next_batch(ask, wanted.environment)
        fresh = [task for task in batch.tasks if task.task_id not in found]
        found.update((task.task_id, task) for task in fresh)
        came_round = len(fresh) < len(batch.tasks) or not fresh
        cursor = None if batch.exhausted or came_round else batch.next_cursor
    if not found:
        raise InvalidRequest(f"{wanted.environment} has no tasks in its {wanted.split} split")
    return tuple(found.values())


def _find_task_limit(wanted: EvaluationSpec, size: int | None) -> int | None:
    """None for all tasks. The known size applies to default params only."""
    if wanted.tasks is None:
        return ENDLESS if size is None else (None if wanted.params else size)
    return wanted.tasks if size is None or wanted.params else min(wanted.tasks, size)


def require_same_tasks(before: Sequence[str], now: Sequence[HandedOutTask], out: str) -> None:
    """InvalidRequest when the tasks have changed since the evaluation was started."""
    other = [place for place, (old, new) in enumerate(zip(before, now, strict=True)) if old != new.task_id]
    if other:
        raise InvalidRequest(
            f"{len(other)} tasks differ from those that {out} was started with (first at index {other[0]}), because "
            "data, characters or passages have changed: use another --out and another --run"
        )
