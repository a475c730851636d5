"""What goes wrong with the original, and that it does not with ours.

Each of these shows the defect first, in the released package, so that the test of ours says what it claims to."""

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.support.serving import serving
from tests.trainers.conftest import serving_upstream
from tests.trainers.wire import Group, get, join, made, numbers, post, register, take, take_all

MANY = 10_000


def test_original_wedges_when_groups_come_before_the_trainer(upstream: str) -> None:
    post(upstream, made(1, 8), made(2, 8))
    register(upstream, 16)
    assert get(upstream, "/batch") == {
        "status": "error",
        "message": "Trainer not registered. Call /register first.",
        "batch": [],
    }


def test_ours_takes_groups_before_the_trainer(ours: str) -> None:
    post(ours, made(1, 8), made(2, 8))
    register(ours, 16)
    assert take_all(ours) == [[made(1, 8), made(2, 8)]]


def test_original_is_last_in_first_out(upstream: str) -> None:
    register(upstream, 16)
    post(upstream, *(made(number, 8) for number in range(1, 9)))
    assert (numbers(take(upstream) or []), get(upstream, "/status")["current_step"]) == ([7, 8], 4)


def test_ours_is_first_in_first_out_and_counts_what_was_delivered(ours: str) -> None:
    register(ours, 16)
    post(ours, *(made(number, 8) for number in range(1, 9)))
    served = [(numbers(take(ours) or []), get(ours, "/status")["current_step"]) for _ in range(5)]
    assert served == [([1, 2], 1), ([3, 4], 2), ([5, 6], 3), ([7, 8], 4), ([], 4)]


def with_nan(number: int) -> Group:
    return {**made(number, 8), "scores": [float("nan")] * 8}


def test_original_loses_the_batch_that_holds_a_nan(upstream: str) -> None:
    register(upstream, 16)
    said = post(upstream, made(1, 8), with_nan(2)).json()
    failed = httpx.get(f"{upstream}/batch", timeout=120).status_code
    assert (said, failed, take(upstream)) == ({"status": "received"}, 500, None)


def test_ours_refuses_a_nan_at_the_door_and_says_where(ours: str) -> None:
    register(ours, 16)
    post(ours, made(1, 8))
    refused = post(ours, with_nan(2))
    post(ours, made(3, 8))
    assert (refused.status_code, "scores" in refused.text) == (422, True)
    assert take_all(ours) == [[made(1, 8), made(3, 8)]]


STUCK = {
    "batches of 12, groups of 8": (12, [8] * 3),
    "batches of 16, groups of 6": (16, [6] * 8),
    "a 12 among eights": (16, [8, 12, 8, 8, 12]),
    "a 32 before the others": (16, [32, 8, 8]),
    "threes among eights": (16, [8, 8, *[3] * 16]),
}


@pytest.mark.parametrize("case", STUCK)
def test_original_answers_null_for_ever(upstream: str, case: str) -> None:
    batch_size, sizes = STUCK[case]
    register(upstream, batch_size)
    post(upstream, *(made(number, size) for number, size in enumerate(sizes)))
    assert sequences(take_all(upstream)) != sequences([[made(number, size) for number, size in enumerate(sizes)]])


@pytest.mark.parametrize("case", STUCK)
def test_ours_serves_every_sequence_once_in_full_batches(ours: str, case: str) -> None:
    batch_size, sizes = STUCK[case]
    groups = [made(number, size) for number, size in enumerate(sizes)]
    register(ours, batch_size)
    post(ours, *groups)
    batches = take_all(ours)
    assert [len(sequences([batch])) for batch in batches] == [batch_size] * (sum(sizes) // batch_size)
    assert sequences(batches) == sequences([groups])


def sequences(batches: Sequence[list[Group]]) -> list[str]:
    """Everything that belongs to one sequence, for each, without an order."""
    parts = ("tokens", "masks", "scores", "inference_logprobs", "messages", "overrides", "distill_token_ids")
    return sorted(
        json.dumps(one)
        for batch in batches
        for group in batch
        for one in zip(*(group[part] for part in parts), strict=True)
    )


def lean(number: int) -> Group:
    full = made(number, 8)
    return {name: full[name] for name in ("tokens", "masks", "scores")}


def queue_many(url: str) -> None:
    for start in range(1, MANY, 500):
        groups = [lean(number) for number in range(start, start + 500)]
        httpx.post(f"{url}/scored_data_list", json=groups, timeout=60).raise_for_status()


def test_of_ten_thousand_queued_groups_one_batch_is_made(upstream: str, ours: str) -> None:
    """The original makes batches of all of them at once, newest first. How long everybody waits is measured by
    `benchmarks.atropos`."""
    for url in (upstream, ours):
        register(url, 64)
        queue_many(url)
    first = {url: numbers(take(url) or []) for url in (upstream, ours)}
    assert (first[upstream][-1], get(upstream, "/status")) == (MANY, {"current_step": 1250, "queue_size": 0})
    assert (first[ours], get(ours, "/status")) == ([*range(1, 9)], {"current_step": 1, "queue_size": MANY - 8})


def killed(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_original_loses_everything_when_it_is_killed(tmp_path: Path) -> None:
    with serving_upstream(tmp_path) as (url, process):
        register(url, 16)
        post(url, made(1, 8), made(2, 8))
        killed(process)
    with serving_upstream(tmp_path) as (url, _):
        assert get(url, "/info") == {"batch_size": -1, "max_token_len": -1}
        assert get(url, "/status") == {"current_step": 0, "queue_size": 0}


def test_ours_keeps_what_it_acknowledged_when_it_is_killed(tmp_path: Path) -> None:
    """The second batch was sent, and nobody asked again: it is sent again."""
    with serving(tmp_path) as served:
        url = f"{served.url}/compat/atropos"
        register(url, 16)
        post(url, *(made(number, 8) for number in range(1, 7)))
        before = [numbers(take(url) or []), numbers(take(url) or [])]
        served.kill()
    with serving(tmp_path) as served:
        url = f"{served.url}/compat/atropos"
        after = [numbers(batch) for batch in take_all(url)]
    assert (before, after) == ([[1, 2], [3, 4]], [[3, 4], [5, 6]])


def test_original_has_no_use_for_weights_and_ours_has(upstream: str, ours: str) -> None:
    """Three of four groups of each batch come from the environment that weighs three times as much."""
    batches = {}
    for url in (upstream, ours):
        register(url, 16)
        take(url)
        heavy, light = (join(url, 4, weight=weight)["env_id"] for weight in (3.0, 1.0))
        post(url, *(made(number, 4, light) for number in range(1, 5)))
        post(url, *(made(number, 4, heavy) for number in range(5, 17)))
        batches[url] = sorted([group["env_id"] for group in batch].count(heavy) for batch in take_all(url))
    assert batches == {upstream: [0, 4, 4, 4], ours: [3, 3, 3, 3]}


def test_an_environment_that_died_stalls_the_original(upstream: str) -> None:
    """Ours: `test_a_killed_environment_does_not_hold_up_the_other`."""
    register(upstream, 8)
    take(upstream)
    living, _dead = (join(upstream, 4, minimum=0.5)["env_id"] for _ in range(2))
    post(upstream, *(made(number, 4, living) for number in range(1, 9)))
    assert take(upstream) is None


def test_ours_says_why_there_is_no_batch(ours: str) -> None:
    nobody = get(ours, "/why")["why"]
    register(ours, 16)
    post(ours, made(1, 8))
    assert (nobody, get(ours, "/why")["why"]) == (
        "No trainer has registered (POST /register). 0 groups (0 sequences) stay in the queue.",
        "The queue has 8 of the 16 sequences of a batch.",
    )
