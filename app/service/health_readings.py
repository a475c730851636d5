"""Readings for run health: anchors again by their own judges, groups by a shadow judge. They are no scorings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from app.domain.groups import Group, TaskRecord
from app.domain.health_records import HealthReading, ReadingKind
from app.domain.judging import Judgement
from app.domain.runs import Run, ScoringOptions
from app.domain.scores import Score
from app.ports.health import RunHealthStore
from app.ports.judges import Panels
from app.ports.runtime import Observer
from app.ports.sandbox import Programs, Workers
from app.service.judging import JudgedCompletions, score_completions, select_options
from app.service.run_registry import RunRegistry
from app.service.sheet_versions import SheetVersions
from app.service.task_cache import TaskCache


@dataclass(frozen=True)
class HealthReader:
    health: RunHealthStore
    runs: RunRegistry
    panels: Panels
    sheet_versions: SheetVersions
    task_cache: TaskCache
    workers: Workers
    programs: Programs
    observer: Observer

    async def read_anchor(self, run: Run, group: Group, at_group: int) -> HealthReading:
        """Each judge of the run reads the group once, as it would be asked first, past its cache."""
        return await self._read(run, group, at_group, "anchor", run.options.judges)

    async def read_with_shadow(self, run: Run, group: Group, at_group: int, judge: str) -> HealthReading:
        return await self._read(run, group, at_group, "shadow", (judge,))

    async def _read(
        self, run: Run, group: Group, at_group: int, kind: ReadingKind, judges: tuple[str, ...]
    ) -> HealthReading:
        reading_id = f"health_{uuid4().hex}"
        changed = {"judges": judges, "readings": 1, "votes": 1, "calibration_share": 0.0, "on_truncated": "score"}
        options = run.options.model_copy(update=changed)
        record = (await self.task_cache.get([group.task_id]))[group.task_id]
        judged, names = await self._score(group, record, options, reading_id)
        values = tuple(_get_value(score) for score in judged.scores)
        reading = HealthReading(
            reading_id=reading_id,
            run=run.name,
            environment=group.environment,
            label=record.label,
            group_id=group.group_id,
            kind=kind,
            judges=names,
            at_group=at_group,
            values=values,
            distance=_compute_distance(group.scores, values) if kind == "shadow" else None,
            tokens=sum(map(_count_tokens, judged.judgements)),
            failed="" if any(value is not None for value in values) else _explain_failure(judged.scores),
        )
        self.observer.record_judgements(judged.judgements)
        return await self.health.add_reading(reading, judged.judgements, reading_id)

    async def _score(
        self, group: Group, record: TaskRecord, options: ScoringOptions, reading_id: str
    ) -> tuple[JudgedCompletions, tuple[str, ...]]:
        hosted = await self.sheet_versions.get_version(group.environment, record.key.data_digest)
        if (hosted.environment.version, hosted.data_digest) != (record.key.version, record.key.data_digest):
            gone = Score.unscored("version_changed", "the anchor's task was made by another version")
            return JudgedCompletions((gone,) * len(group.rollouts)), ()
        options = select_options(hosted.environment, options)
        panel = self.panels.build_fresh_panel(group.environment, options)
        budget = await self.runs.find_budget(group.model_copy(update={"group_id": reading_id}), options)
        judged = await score_completions(
            hosted.environment,
            self.task_cache.get_task(hosted, record),
            [rollout.completion for rollout in group.rollouts],
            options,
            panel,
            self.workers,
            self.programs,
            what=f"run health, {group.group_id}",
            budget=budget,
        )
        return judged, panel.judges


def _get_value(score: Score) -> float | None:
    """Gated replies tell nothing about a judge."""
    return None if score.gate == 0 else score.absolute


def _count_tokens(judgement: Judgement) -> int:
    return judgement.input_tokens + judgement.output_tokens + judgement.unanswered_tokens


def _compute_distance(own: Sequence[Score], values: Sequence[float | None]) -> float | None:
    both = [
        score.absolute - value
        for score, value in zip(own, values, strict=True)
        if value is not None and score.absolute is not None and score.gate != 0
    ]
    return math.fsum(both) / len(both) if both else None


def _explain_failure(scores: Sequence[Score]) -> str:
    return next((f"{score.reason}: {score.rationale}" for score in scores if score.reason), "no reply was read")[:500]
