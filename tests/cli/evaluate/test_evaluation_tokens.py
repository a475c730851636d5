"""`evaluate` keeps the ids that a server told, turn by turn, and says where texts give others."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.chat_server import serving as serving_policy
from tests.support.evaluating import Evaluated, evaluate
from tests.support.gateways import Gateways
from tests.support.policy_server import END, Style, answers_rows, logprob, prompt_ids, script
from tests.support.serving import Served

ROWS = 3


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of_rows(ROWS)


def read_tokens(done: Evaluated) -> dict[tuple[int, int], list[dict[str, Any]]]:
    lines = (done.out / "tokens.jsonl").read_text(encoding="utf-8").splitlines()
    return {(one["place"], one["sample"]): one["turns"] for one in map(json.loads, lines)}


def read_conversation(gateway: Served, group_id: str, place: int) -> list[dict[str, str]]:
    """The prompt and all that followed, of one rollout of a stored group."""
    group = httpx.get(f"{gateway.url}/groups/{group_id}").json()["group"]
    prompt = httpx.get(f"{gateway.url}/tasks/{group['task_id']}").json()["messages"]
    completion = group["rollouts"][place]["completion"]
    said = completion["messages"] or [{"role": "assistant", "content": completion["text"]}]
    return [{"role": one["role"], "content": one["content"]} for one in (*prompt, *said)]


def expect_turns(conversation: list[dict[str, str]]) -> list[dict[str, Any]]:
    turns, before = [], 0
    for at in (at for at, message in enumerate(conversation) if message["role"] == "assistant"):
        prompt, ids = prompt_ids(conversation[:at]), [*conversation[at]["content"].encode(), END]
        turn = {"kept": before, "joined": True, "from_server": True, "prompt_ids": prompt[before:]}
        turns.append({**turn, "completion_ids": ids, "logprobs": list(map(logprob, range(len(ids))))})
        before = len(prompt) + len(ids)
    return turns


@pytest.mark.parametrize("style", ["vllm", "sglang_meta"])
def test_every_attempt_keeps_what_the_server_told(gateway: Served, tmp_path: Path, style: Style) -> None:
    with serving_policy(script(answers_rows, style)) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path, "--run", style, "--samples", "2", "--keep-tokens")
    expected = {
        (one.place, one.sample): expect_turns(read_conversation(gateway, str(one.group_id), one.sample))
        for one in done.attempts
    }
    assert (done.exit_code, read_tokens(done), len(expected)) == (0, expected, 2 * ROWS), done.told


def test_ids_are_stored_in_the_gateway_where_that_is_asked_for(gateway: Served, tmp_path: Path) -> None:
    with serving_policy(script(answers_rows)) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path, "--run", "stored", "--samples", "2", "--store-tokens")
    groups = [
        httpx.get(f"{gateway.url}/groups/{one}").json()["group"] for one in {one.group_id for one in done.attempts}
    ]
    completions = [one["completion"] for group in groups for one in group["rollouts"]]
    due = [[*str(one["text"]).encode(), END] for one in completions]
    assert ([one["token_ids"] for one in completions], len(due)) == (due, 2 * ROWS), done.told


@pytest.mark.parametrize(
    ("style", "given", "words"),
    [
        ("plain", ["--keep-tokens"], "--keep-tokens: "),
        ("strict", ["--keep-tokens", "--store-tokens"], "--keep-tokens, --store-tokens: "),
        ("vllm", ["--check-tokens"], "--check-tokens needs --tokenizer"),
    ],
)
def test_what_cannot_be_kept_is_refused_first(
    gateway: Served, tmp_path: Path, style: Style, given: list[str], words: str
) -> None:
    with serving_policy(script(answers_rows, style)) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path, "--run", "refused", *given)
    assert (done.exit_code, words in done.told, done.attempts) == (2, True, []), done.told
