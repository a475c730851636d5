"""Environments of the released package in `serve` mode, whose groups a trainer of the package gets."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import serving
from tests.trainers.installed import INSTALLED, Running, running, wait_until, written
from tests.trainers.wire import get, register, status_env, take, take_all

Group = dict[str, Any]

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


def rows(group: Group) -> list[dict[str, object]]:
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


def told(groups: list[Group]) -> dict[str, list[int]]:
    """The numbers of the groups that an environment made, by its name, in order."""
    by_name: dict[str, list[int]] = {}
    for group in groups:
        name, number = group["messages"][0][0]["content"].split()
        by_name.setdefault(name, []).append(int(number))
    return by_name


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


def test_two_environments_with_weights(ours: str, tmp_path: Path, policy: str, tokenizer: Path) -> None:
    record = tmp_path / "batches.jsonl"
    settings = {"groups": 6, "group_size": 4}
    with (
        environment(tmp_path, ours, policy, tokenizer, "heavy", inference_weight=3.0, **settings) as (_, heavy),
        environment(tmp_path, ours, policy, tokenizer, "light", inference_weight=1.0, **settings) as (_, light),
        running(tmp_path, "verl_order.py", ours, record, 8, 6) as trainer,
    ):
        trainer.finish()
        weights = [status_env(ours, env_id)["env_weight"] for env_id in (0, 1)]
    groups = [group for batch in written(record) for group in batch]
    by_id = {env_id: told([group for group in groups if group["env_id"] == env_id]) for env_id in (0, 1)}
    sent = told([*written(heavy), *written(light)])
    assert told(groups) == sent == {"heavy": [*range(1, 7)], "light": [*range(1, 7)]}
    found = {next(iter(by_id[env_id])): weight for env_id, weight in enumerate(weights)}
    assert found == {"heavy": 0.75, "light": 0.25}
    assert [len(names) for names in by_id.values()] == [1, 1]


def test_a_killed_environment_does_not_hold_up_the_other(
    ours: str, tmp_path: Path, policy: str, tokenizer: Path
) -> None:
    """Both must have half of every batch. All that was acknowledged of the dead one is served, then it is waited for no
    longer. With a minimum allocation an environment has several workers, so its groups have no order."""
    settings = {"groups": 1000, "group_size": 4, "min_batch_allocation": 0.5}
    batches: list[list[Group]] = []

    def asked() -> None:
        if (batch := take(ours)) is not None:
            batches.append(batch)

    def full(count: int) -> bool:
        asked()
        return len(batches) >= count

    register(ours, 8)
    with (
        environment(tmp_path, ours, policy, tokenizer, "killed", **settings) as (process, killed),
        environment(tmp_path, ours, policy, tokenizer, "living", **settings),
    ):
        wait_until(lambda: full(3))
        process.process.kill()
        process.process.wait()
        wait_until(lambda: full(1) and [*told(batches[-1])] == ["living"])
        enough = len(batches) + 3
        wait_until(lambda: full(enough))
        sent = told(written(killed))
        acknowledged = told(written(killed.with_name(f"{killed.name}.acknowledged")))
    got = told([group for batch in batches for group in batch])
    assert [told(batch).keys() for batch in batches[-3:]] == [{"living": []}.keys()] * 3
    assert {name: sorted(numbers) for name, numbers in got.items()} == {name: sorted({*got[name]}) for name in got}
    assert {*acknowledged["killed"]} <= {*got["killed"]} <= {*sent["killed"]}


def test_a_killed_gateway_loses_nothing_that_an_environment_posted(
    tmp_path: Path, policy: str, tokenizer: Path
) -> None:
    """A batch that was not followed by another question comes again."""
    batches: list[list[Group]] = []
    with serving(tmp_path) as served:
        url = f"{served.url}/compat/atropos"
        register(url, 8)
        take(url)
        settings = {"groups": 12, "group_size": 4, "max_batches_offpolicy": 100}
        with environment(tmp_path, url, policy, tokenizer, "letters", **settings) as (_, made):
            wait_until(lambda: bool(get(url, "/status")["queue_size"] == 12))
            sent = told(written(made))
        batches += [take(url) or [], take(url) or []]
        served.kill()
    with serving(tmp_path) as served:
        batches += take_all(f"{served.url}/compat/atropos")
    assert sent == {"letters": [*range(1, 13)]}
    assert told([group for batch in batches for group in batch]) == {"letters": [1, 2, 3, 4, *range(3, 13)]}
