"""What goes wrong with the original, and that it does not with ours. That it does not is tested in all its parts by
`tests/features/atropos`; here the same calls show the defect in the released package."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.trainers.conftest import Api, serving_upstream
from tests.trainers.wire import Group, get, join, made, numbers, post, register, take, take_all


def test_the_original_wedges_when_groups_come_before_the_trainer(api: Api) -> None:
    post(api.url, made(1, 8), made(2, 8))
    register(api.url, 16)
    wedged = {"status": "error", "message": "Trainer not registered. Call /register first.", "batch": []}
    assert get(api.url, "/batch") == ({"batch": [made(1, 8), made(2, 8)]} if api.ours else wedged)


def test_the_original_is_last_in_first_out_and_jumps_to_the_last_step(api: Api) -> None:
    register(api.url, 16)
    post(api.url, *(made(number, 8) for number in range(1, 9)))
    told = numbers(take(api.url) or []), get(api.url, "/status")["current_step"]
    assert told == (([1, 2], 1) if api.ours else ([7, 8], 4))


def test_the_original_loses_the_batch_that_holds_a_nan(api: Api) -> None:
    register(api.url, 16)
    said = post(api.url, made(1, 8), {**made(2, 8), "scores": [float("nan")] * 8}).status_code
    handed = httpx.get(f"{api.url}/batch", timeout=120).status_code
    assert (said, handed, take(api.url)) == ((422, 200, None) if api.ours else (200, 500, None))


STUCK = {
    "batches of 12, groups of 8": (12, [8] * 3),
    "batches of 16, groups of 6": (16, [6] * 8),
    "a 12 among eights": (16, [8, 12, 8, 8, 12]),
    "a 32 before the others": (16, [32, 8, 8]),
    "threes among eights": (16, [8, 8, *[3] * 16]),
}


@pytest.mark.parametrize(("batch_size", "sizes"), STUCK.values(), ids=STUCK)
def test_the_original_answers_null_for_ever(api: Api, batch_size: int, sizes: list[int]) -> None:
    groups = [made(number, size) for number, size in enumerate(sizes)]
    register(api.url, batch_size)
    post(api.url, *groups)
    batches = take_all(api.url)
    full = [len(sequences([batch])) for batch in batches] == [batch_size] * (sum(sizes) // batch_size)
    assert (full and sequences(batches) == sequences([groups])) == api.ours


def sequences(batches: Sequence[list[Group]]) -> list[str]:
    """Everything that belongs to one sequence, for each, without an order."""
    parts = ("tokens", "masks", "scores", "inference_logprobs", "messages", "overrides", "distill_token_ids")
    return sorted(
        json.dumps(one)
        for batch in batches
        for group in batch
        for one in zip(*(group[part] for part in parts), strict=True)
    )


def test_original_loses_everything_when_it_is_killed(tmp_path: Path) -> None:
    """Ours: `test_a_killed_gateway_loses_nothing_that_an_environment_posted`."""
    with serving_upstream(tmp_path) as (url, process):
        register(url, 16)
        post(url, made(1, 8), made(2, 8))
        process.send_signal(signal.SIGKILL)
        process.wait()
    with serving_upstream(tmp_path) as (url, _):
        assert get(url, "/info") == {"batch_size": -1, "max_token_len": -1}
        assert get(url, "/status") == {"current_step": 0, "queue_size": 0}


def test_original_has_no_use_for_weights_and_ours_has(api: Api) -> None:
    """Three of four groups of each batch come from the environment that weighs three times as much."""
    register(api.url, 16)
    take(api.url)
    heavy, light = (join(api.url, 4, weight=weight)["env_id"] for weight in (3.0, 1.0))
    post(api.url, *(made(number, 4, light) for number in range(1, 5)))
    post(api.url, *(made(number, 4, heavy) for number in range(5, 17)))
    counted = sorted([group["env_id"] for group in batch].count(heavy) for batch in take_all(api.url))
    assert counted == ([3, 3, 3, 3] if api.ours else [0, 4, 4, 4])


def test_an_environment_that_died_stalls_the_original(upstream: str) -> None:
    """Ours: `test_a_killed_environment_does_not_hold_up_the_other`."""
    register(upstream, 8)
    take(upstream)
    living, _dead = (join(upstream, 4, minimum=0.5)["env_id"] for _ in range(2))
    post(upstream, *(made(number, 4, living) for number in range(1, 9)))
    assert take(upstream) is None
