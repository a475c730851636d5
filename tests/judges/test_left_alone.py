"""A server that asks to be left alone is left alone, also by those who were already waiting for their turn."""

import asyncio
import time
from dataclasses import replace

from app.domain.judging import Judgement
from app.judges.chat_judge import ChatJudge
from tests.support.chat_server import Received, Reply, serving
from tests.support.judge_cases import GOOD, REQUEST, completion, config, failure


def test_who_stood_in_line_does_not_ask_before_the_time() -> None:
    arrived: list[float] = []

    def script(number: int, received: Received) -> Reply:
        arrived.append(time.monotonic())
        return replace(failure(429, retry_after="0.5"), seconds=0.1) if number == 0 else completion(GOOD)

    async def four(url: str) -> list[Judgement]:
        judge = ChatJudge(config(url, max_concurrency=1))
        asked = [REQUEST.model_copy(update={"vote": vote}) for vote in range(4)]
        try:
            return list(await asyncio.gather(*map(judge.judge, asked)))
        finally:
            await judge.close()

    with serving(script) as server:
        found = asyncio.run(four(server.url))
    assert ([judgement.error for judgement in found], len(arrived)) == ([None] * 4, 5)
    assert arrived[1] - arrived[0] >= 0.6
