"""Rewards follow the preference that a request brings along, over HTTP on both sides: trainer and judge."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from app.envs.rlaif.environment import Rlaif
from app.main.application import create_app
from app.settings import EnvironmentSettings, JudgeSettings, Settings
from tests.support.chat_server import ChatServer, serving
from tests.support.playground import WAIT
from tests.support.preferring import FEWER, MORE, preferring
from tests.support.shown_prompts import shown_to

T = TypeVar("T")

SHORT = "Knock and ask."
MIDDLE = "Knock and ask whether half past eight would do?"
LONG = "Knock one morning, bring a cake along, say that you like the trumpet, and ask for an earlier hour."
TEXTS = (MIDDLE, LONG, SHORT)


@contextlib.asynccontextmanager
async def gateway(judge: ChatServer, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(
        Settings(
            database_url=f"sqlite:///{folder / 'gateway.db'}",
            judges={"counting": JudgeSettings(base_url=judge.url, model="counter", temperature=0.7)},
            environments={"rlaif": EnvironmentSettings(judges=("counting",))},
        ),
        environments={"rlaif": Rlaif},
    )
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", timeout=60)
    async with app.router.lifespan_context(app), client:
        async with asyncio.timeout(WAIT):
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # HTTP wakes nobody
                await asyncio.sleep(0.005)
        yield client


def within(folder: Path, act: Callable[[httpx.AsyncClient, ChatServer], Awaitable[T]]) -> T:
    async def inside(judge: ChatServer) -> T:
        async with gateway(judge, folder) as client:
            return await act(client, judge)

    with serving(preferring) as judge:
        return asyncio.run(inside(judge))


async def task_for(
    client: httpx.AsyncClient, params: Mapping[str, object], run: str | None = None, cursor: int = 0
) -> str:
    body = {"batch_size": 1, "cursor": cursor, "params": params} | ({} if run is None else {"run": run})
    batch = (await client.post("/envs/rlaif/next-batch", json=body)).raise_for_status().json()
    return str(batch["tasks"][0]["task_id"])


async def rewards_for(
    client: httpx.AsyncClient, task: str, texts: Sequence[str] = TEXTS, run: str | None = None
) -> list[float]:
    group = {"task_id": task, "completions": [{"text": text} for text in texts]}
    body = {"groups": [group]} | ({} if run is None else {"run": run})
    scored = (await client.post("/envs/rlaif/score", json=body)).raise_for_status().json()
    rewards: list[float] = scored["groups"][0]["rewards"]
    return rewards


@pytest.mark.parametrize(
    ("preference", "best_first"),
    [(FEWER, (SHORT, MIDDLE, LONG)), (MORE, (LONG, MIDDLE, SHORT))],
)
def test_the_same_replies_are_ranked_as_the_preference_says(
    tmp_path: Path, preference: str, best_first: tuple[str, ...]
) -> None:
    async def act(client: httpx.AsyncClient, judge: ChatServer) -> list[list[float]]:
        task = await task_for(client, {"preference": preference})
        return [await rewards_for(client, task, order) for order in (TEXTS, TEXTS[::-1])]

    forward, backward = within(tmp_path, act)
    assert forward == backward[::-1]
    by_text = dict(zip(TEXTS, forward, strict=True))
    assert [by_text[text] for text in best_first] == sorted(forward, reverse=True)
    assert (max(forward), min(forward), len(set(forward))) == (1.0, 0.0, 3)


def test_what_the_judge_does_not_understand_teaches_nothing(tmp_path: Path) -> None:
    async def act(client: httpx.AsyncClient, judge: ChatServer) -> list[float]:
        return await rewards_for(client, await task_for(client, {"preference": "Prefer the bluest reply."}))

    assert within(tmp_path, act) == [0.5, 0.5, 0.5]


def test_the_judge_is_told_and_the_model_is_not(tmp_path: Path) -> None:
    async def act(client: httpx.AsyncClient, judge: ChatServer) -> tuple[str, list[dict[str, str]], list[str]]:
        body = {"batch_size": 1, "cursor": 0, "params": {"preference": FEWER, "system": "You are a neighbour."}}
        handed = (await client.post("/envs/rlaif/next-batch", json=body)).raise_for_status()
        (task,) = handed.json()["tasks"]
        await rewards_for(client, task["task_id"])
        return handed.text, task["messages"], [shown_to(received).context for received in judge.received]

    handed, messages, contexts = within(tmp_path, act)
    assert FEWER not in handed
    said = [f" - {message['role']}: {message['content']}" for message in messages]
    assert contexts == ["\n".join((f"preference: {FEWER}", "conversation:", *said))] * 2


def test_the_mode_of_the_original_is_a_setting_of_the_run(tmp_path: Path) -> None:
    """Each pair in both orders, three votes each: six calls for two replies, eighteen for three."""

    async def act(client: httpx.AsyncClient, judge: ChatServer) -> tuple[list[float], list[float], list[int]]:
        options = {"mode": "pairwise", "votes": 3, "relative_weight": 1.0}
        (await client.put("/runs/pairs", json={"options": options})).raise_for_status()
        first, second = [await task_for(client, {"preference": FEWER}, "pairs", cursor) for cursor in (0, 1)]
        pair = await rewards_for(client, first, (LONG, SHORT), "pairs")
        calls = [len(judge.received)]
        three = await rewards_for(client, second, TEXTS, "pairs")
        return pair, three, [*calls, len(judge.received) - calls[0]]

    pair, three, calls = within(tmp_path, act)
    assert (pair, three, calls) == ([0.0, 1.0], [0.5, 0.0, 1.0], [6, 18])
