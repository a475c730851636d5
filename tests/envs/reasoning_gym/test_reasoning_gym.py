"""Families of reasoning-gym: which are served, what may be asked of them, and what is paid."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import JsonValue
from reasoning_gym.factory import DATASETS

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.digests import digest
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.envs.reasoning_gym import choices, environment, package_rows
from app.envs.reasoning_gym.choices import CATEGORIES, FAMILIES, SERVED, PackageLevel, ReasoningGymParams
from app.envs.reasoning_gym.environment import PackageTask, ReasoningGym
from app.ports.environment import Tools
from app.sandbox.in_process import InProcessWorkers
from app.service.catalogue import ServedEnvironment
from app.service.judging import NoPanel
from tests.support.tiers import examples

ENVIRONMENT = ReasoningGym()
TRIED = examples(80, fewest=2)
"""Tasks of each family, level and split."""


def asked(**params: Any) -> ReasoningGymParams:
    return ReasoningGymParams.model_validate(params)


def made(family: str, count: int = TRIED, level: PackageLevel = "default") -> list[Task]:
    params = asked(families=[family], level=level)
    return [ENVIRONMENT.task(split, index, params) for split in ("train", "test") for index in range(count)]


def score(task: Task, *replies: str) -> list[Score]:
    tools = Tools(panel=NoPanel(), workers=InProcessWorkers())
    return asyncio.run(ENVIRONMENT.score(task, [Completion(text=reply) for reply in replies], tools))


def rewards(task: Task, *answers: str) -> list[float | None]:
    return [one.reward for one in score(task, *(f"<answer>{answer}</answer>" for answer in answers))]


def test_every_family_of_the_package_is_served_or_has_a_reason() -> None:
    categories = {name: kind.__module__.split(".")[1] for name, (kind, _) in DATASETS.items()}
    categories["composite"] = "mixture"
    assert {name: family.category for name, family in FAMILIES.items()} == categories
    assert [
        name for name in SERVED if not all(package_rows.has_level(name, one) for one in FAMILIES[name].levels)
    ] == []


@pytest.mark.deep
@pytest.mark.parametrize("family", SERVED)
def test_its_own_answer_is_paid_at_every_level_and_the_splits_stay_apart(family: str) -> None:
    for level in ("default", *FAMILIES[family].levels):
        tasks = made(family, level=level)
        golds = [(task, gold) for task in tasks if (gold := ENVIRONMENT.gold(task)) is not None]
        assert [one.reward for task, gold in golds for one in score(task, gold.answer)] == [1.0] * len(golds)
        asked_for = [{task.messages[0].content for task in part} for part in (tasks[:TRIED], tasks[TRIED:])]
        assert (asked_for[0] & asked_for[1], {task.metadata["level"] for task in tasks}) == (set(), {level})


@pytest.mark.parametrize("family", [name for name in SERVED if FAMILIES[name].shared])
def test_a_family_that_is_opened_once_makes_the_rows_of_one_that_is_opened_anew(family: str) -> None:
    for level in ("default", *FAMILIES[family].levels):
        rows = [
            [package_rows.make_row(family, level, "{}", seed, shared) for seed in (5, 3, 2_000_000_011)]
            for shared in (True, False)
        ]
        assert rows[0] == rows[1]


_PRINT_DIGESTS = (
    "import json, sys\n"
    "from app.domain.digests import digest\n"
    "from app.envs.reasoning_gym.choices import FAMILIES, SERVED\n"
    "from app.envs.reasoning_gym.package_rows import make_row\n"
    "for name in sys.argv[2:][::-1]:\n"
    "    family = FAMILIES[name]\n"
    "    rows = [make_row(name, level, '{}', seed, family.shared)\n"
    "            for level in ('default', *family.levels) for seed in range(int(sys.argv[1]))]\n"
    "    print(json.dumps([name, digest(rows)]))\n"
)


@pytest.mark.slow
def test_another_process_makes_the_same_rows_of_every_family() -> None:
    """With another order of sets, and the families in another order."""
    count = examples(20, fewest=2)
    command = [sys.executable, "-W", "ignore", "-c", _PRINT_DIGESTS, str(count), *SERVED]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "4711"}).stdout
    elsewhere = dict(json.loads(line) for line in said.splitlines() if line.startswith("["))
    here = {
        name: digest(
            [
                package_rows.make_row(name, level, "{}", seed, FAMILIES[name].shared)
                for level in ("default", *FAMILIES[name].levels)
                for seed in range(count)
            ]
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
    [
        ({"config": {"chain_sum": {"max_terms": 0}}}, "config.chain_sum.max_terms", "max_terms must be"),
        ({"config": {"chain_sum": {"max_terms": 10**9}}}, "config.chain_sum.max_terms", "should be between"),
        ({"config": {"chain_sum": {"max_terms": "6"}}}, "config.chain_sum.max_terms", "cannot be changed"),
        ({"config": {"chain_sum": {"max_terms": 2.5}}}, "config.chain_sum.max_terms", "whole number"),
        ({"config": {"chain_sum": {"terms": 2}}}, "config.chain_sum.terms", "no such field: min_terms"),
        ({"config": {"chain_sum": {"seed": 2}}}, "config.chain_sum.seed", "no such field"),
        ({"config": {"chain_sums": {"max_terms": 2}}}, "config.chain_sums", "no family 'chain_sums'"),
        ({"families": ["countdown"]}, "families.countdown", "left out: its scorer runs the answer as Python"),
        ({"families": {"sums": 1}}, "families.sums", "the categories are algebra"),
        ({"families": {"chain_sum": 0}}, "families.chain_sum", "greater than or equal to 1"),
        ({"level": "harder"}, "level", "Input should be"),
    ],
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


def test_part_of_the_credit_counts_only_where_it_is_asked_for() -> None:
    full, graded = (
        ENVIRONMENT.task("train", 0, asked(families=["chain_sum"], credit=one)) for one in ("full", "graded")
    )
    right = PackageTask.model_validate(full.reference).answer or ""
    sent = (right, f"{right} it is, as I worked out", "nothing of it")
    assert rewards(full, *sent) == [1.0, 0.0, 0.0]
    paid = rewards(graded, *sent)
    assert (paid[0], 0.05 < (paid[1] or 0) < 1, paid[2]) == (1.0, True, 0.0)


def test_a_scorer_that_raises_for_a_text_pays_nothing_and_one_that_is_at_fault_gives_no_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raising = ENVIRONMENT.task("train", 0, asked(families=["prime_factorization"]))
    assert rewards(raising, "2 x two", "²") == [0.0, 0.0]

    def broken(*given: object) -> float:
        raise KeyError("metadata")

    monkeypatch.setattr(DATASETS["prime_factorization"][0], "score_answer", broken)
    (score_of_fault,) = score(raising, "<answer>7</answer>")
    assert (score_of_fault.reward, score_of_fault.reason) == (None, "verifier_failed")


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


def test_opening_it_does_not_import_the_package() -> None:
    program = (
        "import sys\n"
        "from app.datasets.configured_datasets import ConfiguredDatasets\n"
        "from app.envs.reasoning_gym.environment import ReasoningGym\n"
        "ReasoningGym.open(ConfiguredDatasets({})).digests\n"
        "print([name for name in ('reasoning_gym', 'sympy', 'matplotlib') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
