"""Families of reasoning-gym: which are served, what may be asked of them, and what is paid."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from reasoning_gym.factory import CURRICULA, DATASETS

from app.cli.envs.check import open_tools
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Task
from app.domain.values import digest
from app.envs.reasoning_gym import choices, environment, package_rows
from app.envs.reasoning_gym.choices import CATEGORIES, FAMILIES, SERVED, PackageLevel, ReasoningGymParams
from app.envs.reasoning_gym.environment import PackageTask, ReasoningGym
from app.ports.environment import Tools
from app.sandbox import workers
from app.service.catalogue import ServedEnvironment
from app.toolkit.conformance.attempts import generate_hostile
from app.toolkit.conformance.probes import HARD
from app.toolkit.conformance.strategies import measure_rewards
from app.toolkit.conformance.subject import CheckDepth, CheckSubject, StrategyFigure
from tests.envs.replies import score_texts
from tests.support.tables import read_table
from tests.support.tiers import examples, is_quick

TABLE = read_table(__file__, "params.yaml", tuple[tuple[dict[str, JsonValue], str, str], ...])

ENVIRONMENT = ReasoningGym()
TRIED = examples(40, fewest=2)
"""Tasks of each family, level and split."""
GUESSED = examples(160)
"""Tasks of a family that strategies learn from, and as many by which they are measured."""


def asked(**params: Any) -> ReasoningGymParams:
    return ReasoningGymParams.model_validate(params)


def made(family: str, count: int = TRIED, level: PackageLevel = "default") -> list[Task]:
    params = asked(families=[family], level=level)
    return [ENVIRONMENT.task(split, index, params) for split in ("train", "test") for index in range(count)]


def score(task: Task, *replies: str) -> list[Score]:
    return score_texts(ENVIRONMENT, task, *replies)


def rewards(task: Task, *answers: str) -> list[float | None]:
    return [one.reward for one in score(task, *(f"<answer>{answer}</answer>" for answer in answers))]


def test_every_family_of_the_package_is_served_or_has_a_reason() -> None:
    categories = {name: kind.__module__.split(".")[1] for name, (kind, _) in DATASETS.items()}
    categories["composite"] = "mixture"
    assert {name: family.category for name, family in FAMILIES.items()} == categories
    assert [name for name in SERVED if name not in CURRICULA and {*FAMILIES[name].levels} - {"default"}] == []


@pytest.fixture(scope="module")
def runner() -> Iterator[tuple[asyncio.Runner, Tools]]:
    """With workers that stay where they are between families, and for longer than the service keeps one: to start one
    anew takes as long as a thousand answers."""
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "CALLS_OF_A_WORKER", 20_000)
        entered = open_tools(ReasoningGym)
        tools = runner.run(entered.__aenter__())
        try:
            yield runner, tools
        finally:
            runner.run(entered.__aexit__(None, None, None))


def _find_allowed(figure: StrategyFigure) -> float:
    """Where all tasks are of a family, its frequent answers are known without looking at the prompt."""
    shares = {one.strategy: one.share or 0.0 for one in ReasoningGym.free_rewards}
    return shares["prompt_features"] if figure.strategy in ("constant", "foreign_answer") else figure.allowed


@pytest.mark.slow
@pytest.mark.parametrize("family", SERVED)
def test_no_family_by_itself_pays_more_than_is_stated(runner: tuple[asyncio.Runner, Tools], family: str) -> None:
    class Asked(ReasoningGymParams):
        families: dict[str, int] = {family: 1}

    class OneFamily(ReasoningGym):
        Params = Asked

    depth = CheckDepth(tasks=2 * GUESSED, guessed=GUESSED)
    subject = CheckSubject(OneFamily(), OneFamily(), runner[1], depth)
    figures = runner[0].run(measure_rewards(subject)).strategies
    paid = [f"{one.strategy}: {one.paid:.1%}" for one in figures if _find_allowed(one) < min(one.low, one.paid)]
    task = subject.make_tasks("train")[0]
    texts = [*HARD.values(), *(f"<answer>{text}</answer>" for text in generate_hostile(GUESSED))]
    scores = runner[0].run(subject.score(task, texts))
    assert (paid, {(one.reward, one.reason) for one in scores}) == ([], {(0.0, None)})


@pytest.mark.deep
@pytest.mark.parametrize("family", SERVED)
def test_its_own_answer_is_paid_at_every_level_and_the_splits_stay_apart(family: str) -> None:
    """The quick tier looks at the base level."""
    for level in ("default", *(() if is_quick() else FAMILIES[family].levels)):
        tasks = made(family, level=level)
        golds = [(task, gold) for task in tasks if (gold := ENVIRONMENT.gold(task)) is not None]
        assert [one.reward for task, gold in golds for one in score(task, gold.answer)] == [1.0] * len(golds)
        asked_for = [{task.messages[0].content for task in part} for part in (tasks[:TRIED], tasks[TRIED:])]
        assert (asked_for[0] & asked_for[1], {task.metadata["level"] for task in tasks}) == (
            set(),
            {choices.resolve_level(family, level)},
        )


_PRINT_DIGESTS, _PRINT_IMPORTS = (
    Path(__file__).with_name(f"print_{what}.txt").read_text(encoding="utf-8") for what in ("digests", "imports")
)


@pytest.mark.slow
def test_another_process_makes_the_same_rows_of_every_family() -> None:
    """With another order of sets, the families in another order, each opened anew for every row."""
    count = examples(20, fewest=2)
    command = [sys.executable, "-W", "ignore", "-c", _PRINT_DIGESTS, str(count), *SERVED]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "4711"}).stdout
    elsewhere = dict(json.loads(line) for line in said.splitlines() if line.startswith("["))
    here = {
        name: digest(
            sorted(
                (
                    package_rows.make_row(name, level, "{}", seed, FAMILIES[name].shared)
                    for level in ("default", *FAMILIES[name].levels)
                    for seed in range(count)
                ),
                key=str,
            )
        )
        for name in SERVED
    }
    assert here == elsewhere


def drawn(count: int, **params: Any) -> Counter[str | None]:
    return Counter(ENVIRONMENT.label("train", index, asked(**params)) for index in range(count))


def test_families_and_categories_are_drawn_by_weight() -> None:
    weighed = drawn(4_000, families={"chain_sum": 2, "graphs": 1, "mini_sudoku": 1})
    graphs = sum(weighed[name] for name in CATEGORIES["graphs"])
    listed = drawn(200, families=["lcm", "dice"])
    assert sum(weighed.values()) == weighed["chain_sum"] + graphs + weighed["mini_sudoku"]
    assert (round(weighed["chain_sum"] / 4_000, 1), round(graphs / 1_000), round(weighed["mini_sudoku"] / 1_000)) == (
        0.5,
        1,
        1,
    )
    assert (set(listed), set(drawn(3_000))) == ({"lcm", "dice"}, set(SERVED))


def test_the_configuration_of_a_family_changes_its_tasks_alone() -> None:
    short = asked(families=["chain_sum"], config={"chain_sum": {"max_terms": 2}})
    other = asked(families=["lcm"], config={"chain_sum": {"max_terms": 2}})
    terms = {len((ENVIRONMENT.task("train", index, short).messages[0].content or "").split()) for index in range(20)}
    plain = ENVIRONMENT.task("train", 3, asked(families=["lcm"]))
    assert (len(terms), ENVIRONMENT.task("train", 3, other)) == (1, plain)


@pytest.mark.parametrize(
    ("params", "field", "said"),
    [*TABLE, ({"config": {"chain_sum": {"max_terms": 10**9}}}, "config.chain_sum.max_terms", "should be between")],
)
def test_wrong_params_are_refused_by_their_name(params: dict[str, JsonValue], field: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ServedEnvironment.from_environment(ENVIRONMENT).validate_params(params)
    assert (refused.value.field, said in refused.value.detail) == (f"params.{field}", True)


def test_every_value_that_a_level_has_may_be_given() -> None:
    given: Sequence[tuple[str, dict[str, JsonValue]]] = (
        ("chain_sum", {"max_terms": 5, "allow_negation": True}),
        ("mini_sudoku", {"max_empty": 9}),
        ("color_cube_rotation", {"max_rotations": 2}),
    )
    for family, values in given:
        params = asked(families=[family], config={family: values})
        task = ENVIRONMENT.task("train", 0, params)
        gold = ENVIRONMENT.gold(task)
        assert gold is not None
        assert [one.reward for one in score(task, gold.answer)] == [1.0]


def test_no_scorer_runs_an_answer_as_python(tmp_path: Path) -> None:
    made = tmp_path / "made"
    call = f"__import__('pathlib').Path({str(made)!r}).touch()"
    texts = [form.format(call) for form in ("{}", "[{}]", "[[{}]]", "{}+1", "x = {}", "str({})")]
    for family in SERVED:
        rewards(ENVIRONMENT.task("train", 0, asked(families=[family])), *texts)
        assert (family, made.exists()) == (family, False)


def test_part_of_the_credit_counts_as_nothing() -> None:
    task = ENVIRONMENT.task("train", 0, asked(families=["chain_sum"]))
    right = PackageTask.model_validate(task.reference).answer or ""
    assert rewards(task, right, f"{right} it is, as I worked out", "nothing of it") == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("family", [name for name in SERVED if FAMILIES[name].demand != "none"])
def test_a_list_that_a_scorer_would_pay_is_no_answer(family: str) -> None:
    task = ENVIRONMENT.task("train", 1, asked(families=[family]))
    right = PackageTask.model_validate(task.reference).answer or ""
    assert rewards(task, right, f"{right}, {right}1, 7", f"{right} or 7") == [1.0, 0.0, 0.0]


def test_a_text_that_is_no_answer_earns_nothing() -> None:
    task = ENVIRONMENT.task("train", 0, asked(families=["prime_factorization"]))
    assert rewards(task, "2 x two", "²") == [0.0, 0.0]


@pytest.mark.parametrize("fault", [KeyError("metadata"), MemoryError(), ValueError("of its own answer, too"), None])
def test_a_fault_of_a_scorer_gives_no_score(monkeypatch: pytest.MonkeyPatch, fault: Exception | None) -> None:
    task = ENVIRONMENT.task("train", 0, asked(families=["prime_factorization"]))

    def fail(*given: object) -> float:
        if fault is not None:
            raise fault
        return float("nan")

    monkeypatch.setattr(DATASETS["prime_factorization"][0], "score_answer", fail)
    assert [(one.reward, one.reason) for one in score(task, "<answer>7</answer>")] == [(None, "verifier_failed")]


def test_another_question_than_the_one_handed_out_gives_no_score() -> None:
    task = ENVIRONMENT.task("train", 0, asked(families=["lcm"]))
    reference = PackageTask.model_validate(task.reference).model_copy(update={"question": "0"})
    other = task.model_copy(update={"reference": reference.model_dump(mode="json")})
    assert [one.reason for one in score(other, "<answer>7</answer>", "no answer")] == ["verifier_failed", None]


def test_without_the_package_it_is_unavailable_and_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "PACKAGE", "reasoning_gym_of_nobody")
    with pytest.raises(EnvironmentUnavailable) as refused:
        ReasoningGym.open(ConfiguredDatasets({}))
    assert refused.value.detail == f"reasoning_gym: {environment.MISSING}"


def test_the_package_is_imported_for_the_first_task_and_matplotlib_never() -> None:
    """A worker may not be able to: it writes into the user's folder."""
    done = subprocess.run([sys.executable, "-c", _PRINT_IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] ['reasoning_gym']"
