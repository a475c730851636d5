"""Environments of the released package in `serve` mode, whose groups a trainer of the package gets."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.installed import INSTALLED, Running, running, written

WIDTH = 64
"""The example trainer pads to multiples of this; all sequences here are shorter."""


@contextmanager
def environment(
    folder: Path, url: str, policy: str, tokenizer: Path, name: str, **settings: object
) -> Iterator[tuple[Running, Path]]:
    """A process of it, and the file in which its groups are as it made them."""
    record = folder / f"{name}.jsonl"
    options = {
        "env.rollout_server_url": url,
        "env.wandb_name": name,
        "env.tokenizer_name": tokenizer,
        "env.record": record,
        "openai.base_url": policy,
        "openai.model_name": tokenizer,
        **{f"env.{key}": value for key, value in settings.items()},
    }
    arguments = [str(part) for key, value in options.items() for part in (f"--{key}", value)]
    with running(folder, "environment.py", "serve", *arguments) as process:
        yield process, record


def rows(group: dict[str, Any]) -> list[dict[str, object]]:
    """What the example trainer trains on, by sequence."""
    mean, spread = statistics.fmean(group["scores"]), statistics.pstdev(group["scores"])
    return [
        {
            "tokens": (tokens + [0] * WIDTH)[:WIDTH],
            "labels": (masks + [-100] * WIDTH)[1 : WIDTH + 1],
            "advantages": [0.0 if override["set_advantage_to_zero"] else round((score - mean) / spread, 6)],
            "temperatures": [[0.75]],
            "logprobs": (logprobs + [1.0] * WIDTH)[1 : WIDTH + 1],
        }
        for tokens, masks, score, logprobs, override in zip(
            *(group[key] for key in ("tokens", "masks", "scores", "inference_logprobs", "overrides")), strict=True
        )
    ]


def trained(batches: list[dict[str, list[Any]]]) -> list[dict[str, object]]:
    """What the example trainer was given, by sequence."""
    sequences = [
        dict(zip(batch, values, strict=True)) for batch in batches for values in zip(*batch.values(), strict=True)
    ]
    return [{**row, "advantages": [round(one, 6) for one in row["advantages"]]} for row in sequences]


@pytest.mark.skipif(
    not (INSTALLED / ".torch").exists(), reason="the example trainer needs torch, which is not installed"
)
def test_the_example_trainer_trains_on_every_group_once(
    ours: str, tmp_path: Path, policy: str, tokenizer: Path
) -> None:
    record = tmp_path / "trained.jsonl"
    with (
        environment(tmp_path, ours, policy, tokenizer, "letters", groups=6, group_size=4) as (_, made),
        running(tmp_path, "example_loop.py", ours, record, 8, 2, 3) as trainer,
    ):
        trainer.finish()
    expected = [row for group in written(made) for row in rows(group)]
    got = trained(written(record))
    assert (len(got), got) == (24, expected)


@pytest.mark.wire
def test_all_fourteen_fields_arrive_as_they_were_sent(ours: str, tmp_path: Path, policy: str, tokenizer: Path) -> None:
    record = tmp_path / "batches.jsonl"
    with (
        environment(tmp_path, ours, policy, tokenizer, "letters", groups=3, group_size=4) as (_, made),
        running(tmp_path, "verl_order.py", ours, record, 4, 3) as trainer,
    ):
        trainer.finish()
    sent = [[{**group, "env_id": 0}] for group in written(made)]
    assert (len(sent), written(record)) == (3, sent)
