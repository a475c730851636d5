"""What every discovered environment must do, whoever wrote it: the checks of `app.toolkit.conformance` one by one."""

import asyncio
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

import pytest
from pydantic import create_model

from app.cli.envs.check import open_tools
from app.cli.envs.subprocess_digests import SubprocessDigests, compute_digests_in_subprocess
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import ScoringFailed
from app.domain.judging import Case, PanelResult
from app.domain.tasks import Completion
from app.main.components import discover
from app.ports.environment import Environment, Tools
from app.service.judging import NoPanel
from app.toolkit.conformance.checks import CHECKS, Check, apply_check
from app.toolkit.conformance.subject import SPLITS, CheckDepth, CheckSubject, compute_sample_digest
from app.toolkit.procedural import Level, ProceduralEnvironment
from tests.support.tiers import examples, is_quick

CLASSES = discover()
DEPTH = CheckDepth(
    tasks=examples(1_000, fewest=60),
    scored=12 if is_quick() else 24,
    sample=6 if is_quick() else 12,
    texts=examples(200, fewest=20 if is_quick() else 60),
    guessed=examples(300, fewest=20),
    guessed_programs=examples(20, fewest=6),
)
"""`test_verifiers` scores more of each split, and looks at more texts."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.xdist_group(f"environment {name}")) for name in sorted(CLASSES)],
)
def examined(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, CheckSubject]]:
    """An environment with the tasks that all checks look at and the workers that they need, in one process."""
    kind = CLASSES[request.param]
    with asyncio.Runner() as runner:
        entered = open_tools(kind)
        tools = runner.run(entered.__aenter__())
        one, again = (kind.open(ConfiguredDatasets({})) for _ in range(2))
        try:
            yield runner, CheckSubject(one, again, tools, DEPTH)
        finally:
            runner.run(entered.__aexit__(None, None, None))


@pytest.mark.deep
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_it_does_what_every_environment_must(examined: tuple[asyncio.Runner, CheckSubject], check: Check) -> None:
    runner, subject = examined
    assert runner.run(apply_check(subject, check)).findings == ()


LEVELLED = sorted(name for name, kind in CLASSES.items() if issubclass(kind, ProceduralEnvironment))
FIRST = {"the_same_bytes", "the_answer_is_hidden", "labels_agree", "gold_earns_one", "junk_earns_nothing"}
"""Checks that tasks of level `first` pass too. They are so small that a guess is often right."""


def open_level(name: str, level: Level | Literal["mixed"]) -> Environment:
    """As if the level were the default: checks look at tasks with the default params."""
    kind: Any = CLASSES[name]
    params = create_model("ParamsOfLevel", __base__=kind.Params, level=(Any, level))
    levelled: Any = type(kind.__name__, (kind,), {"Params": params})
    opened: Environment = levelled.open(ConfiguredDatasets({}))
    return opened


@pytest.mark.deep
@pytest.mark.parametrize("name", LEVELLED)
async def test_small_first_tasks_do_what_every_task_must(name: str) -> None:
    depth = CheckDepth(tasks=examples(200, fewest=30), scored=30, sample=6, texts=20)
    async with open_tools(CLASSES[name]) as tools:
        subject = CheckSubject(open_level(name, "first"), open_level(name, "first"), tools, depth)
        found = [await apply_check(subject, check) for check in CHECKS if check.name in FIRST]
    assert ([one for one in found if one.findings], len(found)) == ([], len(FIRST))


@pytest.mark.deep
@pytest.mark.parametrize("level", ["first", "mixed"])
@pytest.mark.parametrize("name", LEVELLED)
def test_what_is_one_task_by_its_key_is_in_one_split(name: str, level: Level | Literal["mixed"]) -> None:
    environment = open_level(name, level)
    assert isinstance(environment, ProceduralEnvironment)
    train, test = (
        {
            environment.key(environment.parse_reference(environment.task(split, index, environment.Params())))
            for index in range(examples(400, fewest=20))
        }
        for split in SPLITS
    )
    assert train & test == set()


@lru_cache
def _elsewhere() -> dict[str, SubprocessDigests]:
    return asyncio.run(compute_digests_in_subprocess(sorted(CLASSES), {}))


@pytest.mark.xdist_group("elsewhere")
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_another_process_makes_the_same_tasks(name: str) -> None:
    environment = CLASSES[name].open(ConfiguredDatasets({}))
    assert (
        SubprocessDigests(digests={split: compute_sample_digest(environment, split) for split in SPLITS})
        == _elsewhere()[name]
    )


@pytest.mark.parametrize("name", sorted(name for name, kind in CLASSES.items() if kind.scores_at_once))
def test_what_says_that_it_scores_at_once_awaits_nothing(name: str) -> None:
    environment = CLASSES[name].open(ConfiguredDatasets({}))
    task = environment.task("train", 0, environment.Params())
    group = [Completion(text="Yes."), Completion(text="<answer>No</answer> \\boxed{3}")]  # messages count as large
    with pytest.raises(StopIteration) as ended:
        environment.score(task, group, Tools(panel=NoPanel())).send(None)
    assert len(ended.value.value) == 2


class _Questions(NoPanel):
    def __init__(self) -> None:
        self.asked: list[Case] = []

    async def judge(self, case: Case) -> PanelResult:
        self.asked.append(case)
        raise ScoringFailed("nobody is asked here")


@pytest.mark.parametrize("name", sorted(name for name, kind in CLASSES.items() if kind.rubric is not None))
async def test_judges_are_asked_what_the_environment_says_it_would_ask(name: str) -> None:
    environment, panel = CLASSES[name].open(ConfiguredDatasets({})), _Questions()
    task = environment.task("train", 0, environment.Params())
    group = [Completion(text="The road is closed until noon."), Completion(text="Come in, and shut the door.")]
    with pytest.raises(ScoringFailed):
        await environment.score(task, group, Tools(panel=panel))
    assert (len(panel.asked), panel.asked) == (1, await environment.build_cases(task, group))
