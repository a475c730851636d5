"""What every discovered environment must do, whoever wrote it: the checks of `app.toolkit.conformance` one by one."""

import asyncio
from functools import lru_cache

import pytest

from app.cli.envs.check import run_check
from app.cli.envs.subprocess_digests import SubprocessDigests, compute_digests_in_subprocess
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion
from app.main.components import discover
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.conformance.checks import CHECKS, Check
from app.toolkit.conformance.subject import SPLITS, CheckDepth, compute_sample_digest
from tests.support.tiers import examples, is_quick

CLASSES = discover()
DEPTH = CheckDepth(
    tasks=examples(1_000, fewest=60),
    scored=24,
    texts=examples(200, fewest=20 if is_quick() else 60),
    guessed=examples(300, fewest=20),
    guessed_programs=examples(20, fewest=6),
)
"""`test_verifiers` scores more of each split, and looks at more texts."""
CASES = [(name, check) for name, kind in sorted(CLASSES.items()) for check in CHECKS if check.applies(kind)]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, id=f"{name}-{check.name}", marks=pytest.mark.xdist_group(f"environment {name}"))
        for name, check in CASES
    ],
)
def test_it_does_what_every_environment_must(name: str, check: Check) -> None:
    """All checks of an environment run in one process, and look at the same tasks."""
    assert asyncio.run(run_check(CLASSES[name], check, DEPTH)).findings == ()


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
