"""`python -m docs.probe_environments [NAME ...]` sends the probes to environments and keeps what they paid and refused.

Without names to all of them: some tasks of each level, of the test split, and of each configured data set. What is kept
in `parts/probes.yaml` is the table of `docs/probes.md`, which `python -m docs.generate` writes.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import yaml
from pydantic import BaseModel

from app.cli.envs.check import discover_environments, open_tools
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.values import Split
from app.ports.environment import Environment
from app.settings import read_settings
from app.toolkit.conformance.probes import HONEST, STRATEGIES
from app.toolkit.conformance.strategies import ScoredAttempts, is_measured, score_attempts
from app.toolkit.conformance.subject import CheckDepth, CheckSubject, NumberedTask
from app.toolkit.procedural import ProceduralEnvironment
from docs.parts.probed_environments import DATA, ProbedEnvironment, read_probed

_TASKS: Final = 60
"""Of each group of tasks."""
_PROGRAM_TASKS: Final = 16
"""As many where scoring runs programs."""


@dataclass(frozen=True)
class _TaskGroup:
    name: str
    split: Split
    params: BaseModel


@dataclass
class _Tally:
    tasks: int = 0
    groups: list[str] = field(default_factory=list)
    paid: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)

    def add(self, group: _TaskGroup, tasks: int, scored: ScoredAttempts) -> None:
        self.groups.append(group.name)
        self.tasks += tasks
        for name in scored.names:
            strategy, kind = name
            if strategy in STRATEGIES:
                key = kind if strategy in HONEST else strategy
                rewards = scored.get_all(name)
                self.paid[key] += sum(reward > 0 for reward in rewards)
                self.sent[key] += len(rewards)


def main(names: Sequence[str]) -> None:
    kinds = {name: kind for name, kind in discover_environments().items() if kind.__module__.startswith("app.envs.")}
    datasets = ConfiguredDatasets(read_settings().datasets)
    probed = {name: one for name, one in read_probed().items() if name in kinds}
    for name in names or sorted(kinds):
        probed[name] = asyncio.run(_probe(kinds[name], datasets))
        sys.stdout.write(f"{name}: {probed[name].tasks} tasks\n")
        sys.stdout.flush()
        kept = {name: one.model_dump(mode="json", exclude_defaults=True) for name, one in sorted(probed.items())}
        DATA.write_text(yaml.safe_dump(kept, sort_keys=False, width=120, default_flow_style=None), encoding="utf-8")


async def _probe(kind: type[Environment], datasets: ConfiguredDatasets) -> ProbedEnvironment:
    environment = kind.open(datasets)
    if environment.rubric is not None:
        return ProbedEnvironment(version=kind.version, judged=True)
    tally = _Tally()
    count = _PROGRAM_TASKS if kind.runs_programs else _TASKS
    async with open_tools(kind) as tools:
        depth = CheckDepth(guessed=count, guessed_programs=count)
        subject = CheckSubject(environment, environment, tools, depth)
        for group in _list_groups(environment):
            tasks = [*_make_tasks(environment, group, count)]
            tally.add(group, len(tasks), await score_attempts(subject, tasks))
    honest = [key for key in tally.sent if key not in STRATEGIES]
    return ProbedEnvironment(
        version=kind.version,
        tasks=tally.tasks,
        groups=tuple(tally.groups),
        paid={name: (tally.paid[name], tally.sent[name]) for name in STRATEGIES if tally.sent[name]},
        not_measured=tuple(name for name in STRATEGIES if not is_measured(environment, name)),
        refused={key: (tally.paid[key], tally.sent[key]) for key in honest if tally.paid[key]},
        right=sum(tally.sent[key] for key in honest),
    )


def _list_groups(environment: Environment) -> Iterator[_TaskGroup]:
    own = {"dataset": "built-in"} if "dataset" in environment.Params.model_fields else {}
    if isinstance(environment, ProceduralEnvironment):
        for level in environment.levels:
            yield _TaskGroup(level, "train", environment.Params.model_validate({**own, "level": level}))
    else:
        yield _TaskGroup("train", "train", environment.Params.model_validate(own))
    yield _TaskGroup("test", "test", environment.Params.model_validate(own))
    for dataset in getattr(environment, "datasets", {}):
        params = environment.Params.model_validate({"dataset": dataset})
        yield from (_TaskGroup(f"{dataset}, {split}", split, params) for split in ("train", "test"))


def _make_tasks(environment: Environment, group: _TaskGroup, count: int) -> Iterable[NumberedTask]:
    size = environment.size(group.split, group.params)
    for index in range(count if size is None else min(count, size)):
        yield NumberedTask(group.split, index, environment.task(group.split, index, group.params))


if __name__ == "__main__":
    main(sys.argv[1:])
