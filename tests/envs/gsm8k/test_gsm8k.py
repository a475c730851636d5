"""The GSM8K environment over a small data set, over generated problems, and over the real rows where they are."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import NoParams, Split
from app.envs.gsm8k.environment import INSTRUCTION, TEST_SIZE, Gsm8k, Gsm8kParams, Gsm8kRow
from app.ports.environment import Tools
from app.service.judging import NoPanel

COINS = Gsm8kRow(
    question="Two bags hold 600 coins each. How many coins?", answer="2 * 600 = <<2*600=1200>>1,200\n#### 1,200"
)
CATS = Gsm8kRow(question="Nine lives, four cats. How many lives?", answer="9 * 4 = 36\n#### 36")
DEBT = Gsm8kRow(question="Bo has $5 and spends $9. What is left?", answer="5 - 9 = -4\n#### -4")


def _over_rows() -> Gsm8k:
    splits: Mapping[Split, tuple[Gsm8kRow, ...]] = {"train": (COINS, CATS), "test": (DEBT,)}
    rows = Dataset(name="default", origin="acme/sums", digest="d1", splits=splits)
    return Gsm8k({rows.name: rows})


def _generated() -> Gsm8k:
    return Gsm8k.open(ConfiguredDatasets({}))


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
        *("acme/sums", {**generated.digests, "dataset": "d1"}, "generated (arithmetic_word)"),
        ["stories", "first_steps"],
        [(2, 1), (None, TEST_SIZE)],
    )


def test_the_first_level_has_sums_of_one_step_and_keeps_those_of_the_test_apart() -> None:
    environment, params = _generated(), Gsm8kParams(level="first")
    sums = {
        split: {_read_sum(environment.gold(environment.task(split, index, params)).text or "") for index in range(200)}
        for split in ("train", "test")
    }
    told = [len(each) > 40 for each in sums.values()]
    assert (told, sums["train"] & sums["test"], Gsm8kParams().model_dump()) == ([True, True], set(), {})


def _read_sum(gold: str) -> str:
    """`8 + 20`, of `Rosa has now: 8 + 20 = 28` and the line with the answer."""
    (shown,) = re.findall(r"^[^:]+: (\d+ [+-] \d+) = (\d+)\n#### \2$", gold)
    return str(shown[0])


def test_the_folder_that_is_configured_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(f"{COINS.model_dump_json()}\n", encoding="utf-8")
    (tmp_path / "test.jsonl").write_text(f"{DEBT.model_dump_json()}\n", encoding="utf-8")
    environment = Gsm8k.open(ConfiguredDatasets({"gsm8k": str(tmp_path)}))
    assert (environment.origin, environment.task("test", 0, NoParams()).reference) == (tmp_path.name, "-4")


@pytest.mark.parametrize("answer", ["", "It is 36.", "#### ", "#### 36 or 37"])
def test_a_row_without_a_gold_is_refused(answer: str) -> None:
    with pytest.raises(ValidationError, match="does not end in"):
        Gsm8kRow(question="?", answer=answer)


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
