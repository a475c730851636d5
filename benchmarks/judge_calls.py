"""What asking a judge's server costs: through the `openai` package as judges do it, over aiohttp alone, and a whole
judgement. Wall time as a multiple of the server's own, processor time a call.
`python -m benchmarks.judge_calls [--record]` takes two rounds in turns: some two minutes.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import aiohttp
import httpx2
import openai
import uvloop
from pydantic import JsonValue

from app.domain.judging import Candidate, JudgeRequest, Probes, Rubric, RubricCriterion
from app.inference.connection import Connection, Endpoint
from app.judges.chat_judge import ChatJudge
from app.judges.configuration import ChatJudgeConfig
from benchmarks import slow_judge
from benchmarks.judging import WORDS, judge_server
from benchmarks.results import BenchmarkFigure, count_rounds, run

CALLS_OF_EACH: Final = 8
"""One after the other, by each of the callers."""
ROUNDS: Final = 2
WIDTHS: Final = (64, 256)
WALL_WANTED: Final = 1.1
"""At most, of a whole judgement with as many calls at once as a judge has by default."""
KEY: Final = "none"
JUDGEMENT: Final = "a whole judgement"
_REQUEST: Final = JudgeRequest(
    rubric=Rubric(
        name="bench",
        version="1",
        instructions=WORDS * 40,
        criteria=(RubricCriterion(name="likeness", weight=1, description="", anchors={0: "none", 4: "all"}),),
        defects=(),
    ),
    document={"sheet": WORDS * 20},
    probes=Probes(),
    candidates=tuple(Candidate(id=f"c{place}", text=f"{place} {WORDS}") for place in range(8)),
)

Call = Callable[[int], Awaitable[object]]
"""Gets the number of the call."""


@dataclass(frozen=True)
class CallCost:
    client: str
    at_once: int
    wall_factor: float
    """Wall time over the time that the server takes for as many calls."""
    cpu_seconds: float
    """Of this process, for each call."""


def measure() -> list[BenchmarkFigure]:
    found: list[CallCost] = []
    with judge_server() as url, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in count_rounds("calls of a judge", ROUNDS):
            found += [runner.run(_measure_client(name, url, width)) for width in WIDTHS for name in CLIENTS]
    return [figure for name in CLIENTS for width in WIDTHS for figure in _list_figures(name, width, found)]


def _list_figures(name: str, width: int, found: Sequence[CallCost]) -> Iterator[BenchmarkFigure]:
    mine = [one for one in found if (one.client, one.at_once) == (name, width)]
    most = WALL_WANTED if (name, width) == (JUDGEMENT, WIDTHS[0]) else None
    wall, used = f"{width} at once, wall time over the server's", f"{width} at once, processor time of a call"
    yield BenchmarkFigure.of(name, [one.wall_factor for one in mine], at_most=most, column=wall)
    yield BenchmarkFigure.of(name, [one.cpu_seconds * 1e3 for one in mine], "ms", column=used)


async def _measure_client(name: str, url: str, at_once: int) -> CallCost:
    async with CLIENTS[name](url) as call:

        async def repeat(caller: int) -> None:
            for place in range(CALLS_OF_EACH):
                await call(1 + caller * CALLS_OF_EACH + place)

        await call(0)  # what is imported then is not counted
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(repeat, range(at_once)))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    ideal = CALLS_OF_EACH * slow_judge.SECONDS
    return CallCost(name, at_once, seconds / ideal, cpu / (at_once * CALLS_OF_EACH))


def _build_body() -> dict[str, JsonValue]:
    question = ChatJudge(ChatJudgeConfig(name="bench", base_url="http://localhost", model="slow")).build_question(
        _REQUEST
    )
    return {"model": "slow", "messages": json.loads(question.prompt_text), "max_tokens": 4096, "temperature": 0.0}


@contextlib.asynccontextmanager
async def _open_aiohttp(url: str) -> AsyncIterator[Call]:
    body = _build_body()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(_number: int) -> object:
            content = json.dumps(body, ensure_ascii=False).encode()
            async with session.post(f"{url}/chat/completions", data=content) as reply:
                return await reply.read()

        yield call


@contextlib.asynccontextmanager
async def _open_connection(url: str) -> AsyncIterator[Call]:
    body = _build_body()
    async with aclosing(Connection(Endpoint(url))) as connection:
        yield lambda _number: connection.post(body)


@contextlib.asynccontextmanager
async def _open_typed(url: str) -> AsyncIterator[Call]:
    """The package as its documentation shows it."""
    body = _build_body()
    http = openai.DefaultAioHttpClient(limits=httpx2.Limits(max_connections=0))
    async with openai.AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0, http_client=http) as client:
        yield lambda _number: client.chat.completions.with_raw_response.create(**body)  # type: ignore[call-overload]


@contextlib.asynccontextmanager
async def _open_judge(url: str) -> AsyncIterator[Call]:
    """With prompt, limits, budget, breaker and the reading of the answer."""
    judge = ChatJudge(ChatJudgeConfig(name="bench", base_url=url, model="slow", max_concurrency=1024))

    async def call(number: int) -> object:
        judgement = await judge.judge(_REQUEST.model_copy(update={"document": {"number": number, "sheet": WORDS * 20}}))
        assert judgement.error is None, judgement.error
        return judgement

    try:
        yield call
    finally:
        await judge.close()


CLIENTS: Final[Mapping[str, Callable[[str], contextlib.AbstractAsyncContextManager[Call]]]] = {
    "aiohttp alone": _open_aiohttp,
    "openai as judges use it": _open_connection,
    "openai over its own aiohttp transport": _open_typed,
    JUDGEMENT: _open_judge,
}


if __name__ == "__main__":
    run("judge_calls", measure)
