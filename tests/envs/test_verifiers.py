"""What every environment that scores without judges must do: over many tasks, and over text that nobody meant."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.cli.envs.check import open_tools, run_check
from app.datasets.configured_datasets import ConfiguredDatasets
from app.main.components import discover
from app.toolkit.conformance.attempts import PIECES
from app.toolkit.conformance.checks import CHECKS, Check
from app.toolkit.conformance.subject import CheckDepth, CheckSubject
from tests.support.tiers import examples

CLASSES = {name: kind for name, kind in discover().items() if kind.rubric is None}
WHOLE = CheckDepth(tasks=examples(1_000), scored=examples(1_000))
TASKS = examples(200, fewest=20)
OVER_MANY = [check for check in CHECKS if check.name in {"gold_earns_one", "strangers_earn_nothing"}]

hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=25).map("".join)
wrapped = st.sampled_from(("{}", "<answer>{}</answer>", "\\boxed{{{}}}", "```python\n{}\n```", "<think>{}</think>{}"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CLASSES))
@pytest.mark.parametrize("check", OVER_MANY, ids=[check.name for check in OVER_MANY])
def test_over_many_tasks_of_each_split(name: str, check: Check) -> None:
    assert asyncio.run(run_check(CLASSES[name], check, WHOLE)).findings == ()


@pytest.fixture(scope="module", params=sorted(CLASSES))
def examining(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, CheckSubject]]:
    """An environment with the workers that it needs, which stay where they are between texts."""
    kind = CLASSES[request.param]
    environment = kind.open(ConfiguredDatasets({}))
    with asyncio.Runner() as runner:
        entered = open_tools(kind)
        tools = runner.run(entered.__aenter__())
        try:
            yield runner, CheckSubject(environment, environment, tools, CheckDepth(tasks=TASKS))
        finally:
            runner.run(entered.__aexit__(None, None, None))


@settings(max_examples=examples(2_000), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(text=hostile, form=wrapped, number=st.integers(0, TASKS - 1))
def test_no_text_raises_or_is_paid_by_accident(
    examining: tuple[asyncio.Runner, CheckSubject], text: str, form: str, number: int
) -> None:
    runner, subject = examining
    tasks = subject.make_tasks("train")
    (score,) = runner.run(subject.score(tasks[number % len(tasks)], [form.format(text, text)]))
    assert (score.outcome, score.reward == 0.0 or subject.environment.chance > 0) == ("scored", True)
