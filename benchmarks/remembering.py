"""What memories cost before the first token of a reply in `/play`: 10,000 turns of earlier talk of one player with one
character, beside the same chat in a world that keeps none. `python -m benchmarks.remembering [MEMORIES] [--record]`:
some two minutes.

The gateway is a process of its own, on SQLite, and the policy a server on loopback that streams at once. Chats of both
kinds take turns, each with another line, so that what the machine does meanwhile slows both. The time ends with the
first event of the reply.
"""

import random
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import httpx

from benchmarks.results import BenchmarkFigure, count_rounds, read_arguments, run
from benchmarks.servers import serving_gateway
from tests.support.chat_server import serving
from tests.support.talking import speaks

MEMORIES: Final = 10_000
ROUNDS: Final = 3
CHATS: Final = 100
"""Of each kind in a round."""
TURNS_AT_ONCE: Final = 100
WORLDS: Final = ("plain", "remembering")
EVENT: Final = {"id": "rope", "time": "1312-04-03T09:15:00Z", "text": "The rope of the ferry broke at Reedgate."}
TOPICS: Final = ("ferry", "rope", "salt", "levy", "horse", "lantern", "brother", "friday", "smith", "bread", "mill")


def say(drawn: random.Random) -> str:
    """A line with common words, and one that few others have."""
    return f"Do you know {' '.join(drawn.choices(TOPICS, k=8))} of mark{drawn.randrange(2_000)}?"


def prepare(client: httpx.Client, memories: int) -> None:
    for world in WORLDS:
        client.post(f"/worlds/{world}/events", json={"events": [EVENT]}).raise_for_status()
    client.patch(f"/worlds/{WORLDS[1]}", json={"memory": True}).raise_for_status()
    drawn = random.Random(1)
    for _ in range(memories // TURNS_AT_ONCE):
        lines = [{"speaker": speaker, "text": say(drawn)} for speaker in ("player", "npc") * TURNS_AT_ONCE]
        told = {"world": WORLDS[1], "heard_by": ["hob_tarrant"], "lines": lines}
        client.post("/play/v1/memories", json=told).raise_for_status()


def time_first_event(client: httpx.Client, world: str, line: str) -> float:
    """Milliseconds."""
    body = {"model": f"hob_tarrant/{world}@fast", "messages": [{"role": "user", "content": line}]}
    began = time.perf_counter()
    with client.stream("POST", "/play/v1/chat/completions", json={**body, "stream": True, "store": False}) as answer:
        answer.raise_for_status()
        lines = answer.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        took = time.perf_counter() - began
        assert "error" not in first
        for _ in lines:  # so that the connection serves the next chat
            pass
    return took * 1000


def measure_round(client: httpx.Client, drawn: random.Random) -> list[float]:
    """The 95th percentile of chats without and with memories, in milliseconds."""
    took: tuple[list[float], list[float]] = ([], [])
    for line in (say(drawn) for _ in range(CHATS)):
        for kind, world in enumerate(WORLDS):
            took[kind].append(time_first_event(client, world, line))
    return [statistics.quantiles(one, n=20)[-1] for one in took]


def measure(memories: int = MEMORIES) -> Sequence[BenchmarkFigure]:
    settings = {"ATROPOS_ENVS_POLICIES__FAST__MODEL": "fast"}
    with serving(speaks()) as policy:
        settings |= {"ATROPOS_ENVS_POLICIES__FAST__BASE_URL": policy.url}
        with serving_gateway(settings) as gateway, httpx.Client(base_url=gateway.url, timeout=60) as client:
            prepare(client, memories)
            for world in WORLDS * 5:
                time_first_event(client, world, "Hob?")
            drawn = random.Random(2)
            rounds = [measure_round(client, drawn) for _ in count_rounds("chats", ROUNDS)]
    plain, told = zip(*rounds, strict=True)
    added = [after - before for before, after in rounds]
    return (
        BenchmarkFigure.of("to the first token without memories, p95", plain, "ms"),
        BenchmarkFigure.of(f"to the first token with {memories:,} memories, p95", told, "ms"),
        BenchmarkFigure.of("what memories add, p95 less p95", added, "ms", at_most=50),
    )


if __name__ == "__main__":
    numbers = [int(one) for one in read_arguments() if one.isdigit()]
    run("remembering", partial(measure, *numbers), given=" ".join(map(str, numbers)))
