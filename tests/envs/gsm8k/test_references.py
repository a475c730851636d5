"""Every reference solution of the real GSM8K, sent over HTTP as a completion for its own task and for the next one."""

import asyncio
from fractions import Fraction
from pathlib import Path

import httpx
import pytest
from pydantic import TypeAdapter

from app.domain.values import Frozen
from tests.support.data_sets import gsm8k_folder
from tests.support.serving import serving

SIZES = {"train": 7473, "test": 1319}
BATCH = 128


class Solved(Frozen):
    question: str
    answer: str

    @property
    def gold(self) -> Fraction:
        return Fraction(self.answer.rpartition("####")[2].strip().replace(",", ""))


def _rows(folder: Path, split: str) -> list[Solved]:
    text = (folder / f"{split}.jsonl").read_text(encoding="utf-8")
    return [TypeAdapter(Solved).validate_json(line) for line in text.splitlines()]


async def _misgraded(url: str, split: str, rows: list[Solved]) -> dict[str, list[int]]:
    """Indexes whose own solution did not earn 1, and whose neighbour's solution earned what it should not."""
    wrong: dict[str, list[int]] = {"own": [], "next": []}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for first in range(0, len(rows), BATCH):
            count = min(BATCH, len(rows) - first)
            ask = {"split": split, "cursor": first, "batch_size": count}
            batch = (await client.post("/envs/gsm8k/next-batch", json=ask)).raise_for_status().json()
            groups = [
                {
                    "task_id": task["task_id"],
                    "completions": [{"text": rows[index].answer}, {"text": rows[index - 1].answer}],
                }
                for index, task in enumerate(batch["tasks"], start=first)
            ]
            scored = (await client.post("/envs/gsm8k/score", json={"groups": groups})).raise_for_status().json()
            for index, group in enumerate(scored["groups"], start=first):
                equal = rows[index].gold == rows[index - 1].gold
                if group["rewards"][0] != 1.0:
                    wrong["own"].append(index)
                if group["rewards"][1] != (1.0 if equal else 0.0):
                    wrong["next"].append(index)
    return wrong


@pytest.mark.slow
def test_every_reference_earns_one_at_home_and_nothing_next_door(tmp_path: Path) -> None:
    folder = gsm8k_folder()
    with serving(tmp_path, settings={"ATROPOS_ENVS_DATASETS__GSM8K": str(folder)}) as gateway:
        found = {split: asyncio.run(_misgraded(gateway.url, split, _rows(folder, split))) for split in SIZES}
    assert {split: len(_rows(folder, split)) for split in SIZES} == SIZES
    assert found == {split: {"own": [], "next": []} for split in SIZES}
