"""The parts `scores` and `programs`: what completions earn, and why."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.errors import WorkerFailed
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion
from app.judges.panel import ConfiguredPanels
from app.ports.environment import Environment
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import ProcessWorkers, choose_size
from app.service.judging import get_panel, score_completions
from tests.record.completions import completions_of, right_answer
from tests.record.hosting import Block, all_hosted, blocks_of
from tests.record.rows import Blocks, NotHere
from tests.support.event_loop import closed_after

SCORED: Final[Mapping[str, int]] = {"code_exec": 25, "math": 12, "text_to_sql": 25, "npc_arena": 50, "rlaif": 60}
"""Tasks of each block whose completions cost more."""
USUALLY: Final = 100
AT_ONCE: Final = 4


def scores() -> Blocks:
    """Of all environments that run no programs of models."""
    return asyncio.run(_scored(runs_programs=False))


def programs() -> Blocks:
    """Of those that do."""
    return asyncio.run(_scored(runs_programs=True))


class Scoring:
    """With what completions are scored. `used` are the functions that ran in workers, without their modules."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.workers = ProcessWorkers(choose_size(), self._worked)
        self.programs = JailedPrograms(choose_size())
        self._panels = ConfiguredPanels({}, {})

    def _worked(self, function: str, outcome: str, seconds: float) -> None:
        self.used.add(f"{function.rpartition(':')[2]} {outcome}")

    async def rows(self, block: Block, indexes: Sequence[int]) -> list[JsonValue]:
        """One for each task, as one group; the right answer of the one that follows is a stranger's."""
        environment = block.environment
        made = [block.task(index) for index in indexes]
        golds = [right_answer(environment, task, place) for place, task in enumerate(made)]
        found: list[JsonValue] = []
        for place, task in enumerate(made):
            group = completions_of(task, golds[place], golds[(place + 1) % len(golds)])
            found.append({"index": indexes[place], "scores": await self.of_group(block, indexes[place], group)})
        return found

    async def of_group(self, block: Block, index: int, group: Mapping[str, Completion]) -> JsonValue:
        options = ScoringOptions()
        judged = await score_completions(
            block.environment,
            block.task(index),
            list(group.values()),
            options,
            get_panel(self._panels, block.hosted, options),
            self.workers,
            self.programs,
            what=block.name,
        )
        return {name: score.model_dump(mode="json") for name, score in zip(group, judged.scores, strict=True)}

    async def close(self) -> None:
        await self.workers.close()
        await self.programs.close()


async def _scored(*, runs_programs: bool) -> Blocks:
    async with closed_after(Scoring()) as scoring:
        if runs_programs:
            await _require(scoring.programs)
        return await _rows_of(scoring, runs_programs=runs_programs)


async def _require(jails: JailedPrograms) -> None:
    try:
        await jails.prepare()
    except WorkerFailed as error:
        raise NotHere(f"programs cannot be run: {error}; {jails.missing}") from error


async def _rows_of(scoring: Scoring, *, runs_programs: bool) -> Blocks:
    wanted = [
        block
        for hosted in all_hosted().values()
        if hosted.environment.runs_programs == runs_programs
        for block in blocks_of(hosted)
    ]
    places = asyncio.Semaphore(AT_ONCE)

    async def rows(block: Block) -> list[JsonValue]:
        async with places:
            return await scoring.rows(block, block.indexes(most_scored(block.environment)))

    found = await asyncio.gather(*(rows(block) for block in wanted))
    made: dict[str, Sequence[JsonValue]] = {block.name: each for block, each in zip(wanted, found, strict=True)}
    return {**made, "functions of workers": sorted(scoring.used)}


def most_scored(environment: Environment) -> int:
    return SCORED.get(environment.name, USUALLY)
