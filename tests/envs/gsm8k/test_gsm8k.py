"""The GSM8K environment over a small data set, over generated problems, and over the real rows where they are."""

import asyncio
import os
import warnings
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import BaseModel, ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.judging import Case, PanelResult
from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import NoParams, Split
from app.envs.gsm8k.environment import CHAINS, INSTRUCTION, STORIES, TEST_SIZE, Gsm8k, Gsm8kRow, WordProblems
from app.ports.environment import Tools
from app.toolkit.answers import grade_number, read_number

ROOT = Path(__file__).parents[3]
RowT = TypeVar("RowT", bound=BaseModel)

COINS = Gsm8kRow(
    question="Two bags hold 600 coins each. How many coins?", answer="2 * 600 = <<2*600=1200>>1,200\n#### 1,200"
)
CATS = Gsm8kRow(question="Nine lives, four cats. How many lives?", answer="9 * 4 = 36\n#### 36")
DEBT = Gsm8kRow(question="Bo has $5 and spends $9. What is left?", answer="5 - 9 = -4\n#### -4")


class NoPanel:
    judges: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    digest = ""

    async def judge(self, case: Case) -> PanelResult:
        raise AssertionError("a verifier asks no judge")


def _over_rows() -> Gsm8k:
    splits: Mapping[Split, tuple[Gsm8kRow, ...]] = {"train": (COINS, CATS), "test": (DEBT,)}
    rows = Dataset(name="default", origin="acme/sums", digest="d1", splits=splits)
    return Gsm8k(WordProblems.read(STORIES, CHAINS), {rows.name: rows})


def _generated() -> Gsm8k:
    return Gsm8k.open(ConfiguredDatasets({}))


def _rewards(environment: Gsm8k, task: Task, *texts: str) -> list[float | None]:
    group = [Completion(text=text) for text in texts]
    scores = asyncio.run(environment.score(task, group, Tools(panel=NoPanel())))
    return [score.reward for score in scores]


def test_a_row_becomes_a_task_that_hides_the_gold() -> None:
    environment = _over_rows()
    assert environment.task("train", 0, NoParams()) == Task(
        messages=(Message(role="system", content=INSTRUCTION), Message(role="user", content=COINS.question)),
        metadata={"source": "acme/sums", "dataset": "default", "split": "train", "index": 0},
        reference="1200",
    )


def test_the_catalogue_tells_where_tasks_come_from() -> None:
    rows, generated = _over_rows(), _generated()
    sizes = [(one.size("train", NoParams()), one.size("test", NoParams())) for one in (rows, generated)]
    assert (rows.origin, rows.digests, generated.origin, list(generated.digests), sizes) == (
        "acme/sums",
        {**generated.digests, "dataset": "d1"},
        "generated (arithmetic_word)",
        ["stories"],
        [(2, 1), (None, TEST_SIZE)],
    )


def test_generated_tasks_say_so() -> None:
    task = _generated().task("test", 3, NoParams())
    assert task.metadata == {"source": "arithmetic_word", "split": "test", "index": 3}


def test_the_folder_that_is_configured_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(f"{COINS.model_dump_json()}\n", encoding="utf-8")
    (tmp_path / "test.jsonl").write_text(f"{DEBT.model_dump_json()}\n", encoding="utf-8")
    environment = Gsm8k.open(ConfiguredDatasets({"gsm8k": str(tmp_path)}))
    assert (environment.origin, environment.task("test", 0, NoParams()).reference) == (tmp_path.name, "-4")


@pytest.mark.parametrize("answer", ["", "It is 36.", "#### ", "#### 36 or 37"])
def test_a_row_without_a_gold_is_refused(answer: str) -> None:
    with pytest.raises(ValidationError, match="does not end in"):
        Gsm8kRow(question="?", answer=answer)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("environment", [_over_rows(), _generated()], ids=["rows", "generated"])
def test_the_gold_is_paid_and_nothing_cheap_is(environment: Gsm8k, split: Split) -> None:
    size = environment.size(split, NoParams()) or 40
    for index in range(min(size, 40)):
        task = environment.task(split, index, NoParams())
        gold = environment.gold(task).answer
        value = Fraction(str(task.reference))
        nothing = (
            "",
            " \n",
            "nan",
            "x" * 100_000,
            "\n".join(message.content or "" for message in task.messages),
            f"<think>{gold}</think>",
            f"<think>{gold}",
            f"It might be {value}.",
            f"#### {value - 1}, {value} or {value + 1}",
            f"\\boxed{{{value - 1}}} \\boxed{{{value}}} \\boxed{{{value + 1}}}",
            f"#### {value + 1}",
        )
        assert _rewards(environment, task, gold, f"<think>hm</think>\\boxed{{{value}}}", *nothing) == [1.0, 1.0] + (
            [0.0] * len(nothing)
        )


def test_the_last_thing_said_is_graded() -> None:
    said = (
        Message(role="assistant", content="#### 35"),
        Message(role="user", content="Sure?"),
        Message(role="assistant", content="Sorry.\n#### 36"),
    )
    task = _over_rows().task("train", 1, NoParams())
    scores = asyncio.run(_over_rows().score(task, [Completion(messages=said)], Tools(panel=NoPanel())))
    assert scores == [Score.exact(True, rationale="read 36 from the #### line; correct")]


def test_golds_of_equal_value_are_equivalent() -> None:
    environment = _over_rows()
    one, other = (Task(messages=(), reference=reference) for reference in ("1200", "2400/2"))
    different = environment.task("train", 1, NoParams())
    assert (environment.equivalent(one, other), environment.equivalent(one, different)) == (True, False)


def _real_location() -> str | None:
    beside = ROOT.parent / "shared" / "data" / "gsm8k"
    return os.environ.get("ATROPOS_ENVS_DATASETS__GSM8K") or (str(beside) if beside.is_dir() else None)


def test_every_real_reference_is_paid_and_no_other() -> None:
    location = _real_location()
    if location is None:
        reason = "GSM8K itself was not checked: set ATROPOS_ENVS_DATASETS__GSM8K to a folder or a hub id"
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(reason, stacklevel=1)
        pytest.skip(reason)
    environment = Gsm8k.open(ConfiguredDatasets({"gsm8k": location}))
    rows = environment.datasets["default"]
    sizes: list[int | None] = []
    wrong: list[tuple[Split, int]] = []
    splits: tuple[Split, Split] = ("train", "test")
    for split in splits:
        size = environment.size(split, NoParams()) or 0
        sizes.append(size)
        tasks = [environment.task(split, index, NoParams()) for index in range(size)]
        for index, task in enumerate(tasks):
            following = tasks[(index + 1) % size]
            text = environment.gold(task).answer
            own = grade_number(text, Fraction(str(task.reference))).reward
            foreign = grade_number(text, Fraction(str(following.reference))).reward
            if (own, foreign) != (1.0, 1.0 if environment.equivalent(task, following) else 0.0):
                wrong.append((split, index))
    golds_agree = all(
        read_number(row.answer).value == Fraction(row.answer.rpartition("#### ")[2].replace(",", ""))
        for split in splits
        for row in rows.splits[split]
    )
    assert (sizes, wrong, golds_agree) == ([7473, 1319], [], True)
