"""Groups of 16 completions of 8,000 and 32,000 tokens: `python -m benchmarks.long_completions [--record]`.

In each round a group is sent to a gateway on SQLite or PostgreSQL, and the same bytes are parsed and compressed by this
process alone, which is the limit: whoever stores such a body must do both. Meanwhile `/livez` of the gateway is asked
for, and that of a second one that gets nothing. Then the pages of the last group are read, and the tables are measured.

Texts are words of this project's documents; ids are drawn as frequent and rare words are, and half of the logprobs are
nearly zero, as those of a trained model. `singles` are logprobs as inference servers compute them, in single precision;
`decimals` are rounded to six to nine digits. All of it takes less than a minute."""

import json
import random
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import httpx
import zstandard
from pydantic import JsonValue
from pydantic_core import from_json

from app.store.copy import measure_database
from benchmarks.results import BenchmarkFigure, run, tell_progress
from tests.support.databases import MIGRATIONS, running_postgres
from tests.support.livez_waits import asking_livez
from tests.support.serving import ROOT, serving

Numbers = Literal["singles", "decimals", "none"]

GROUP_SIZE: Final = 16
ROUNDS: Final = 5
CASES: Final[tuple[tuple[int, Numbers], ...]] = (
    *((8_000, "singles"), (8_000, "decimals"), (8_000, "none")),
    *((32_000, "singles"), (32_000, "decimals"), (32_000, "none")),
)
LOGPROBS: Final[dict[Numbers, str]] = {
    "singles": "single precision",
    "decimals": "decimals",
    "none": "text alone",
}
VOCABULARY: Final = 150_000
TOKENS_PER_WORD: Final = 1.75
WORDS: Final = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8").split()
LEVEL: Final = 3
MOST_MILLISECONDS: Final = 200
PAGE_TURNS: Final = 3


def make_completion(chance: random.Random, tokens: int, numbers: Numbers) -> dict[str, JsonValue]:
    text = " ".join(chance.choices(WORDS, k=int(tokens / TOKENS_PER_WORD)))
    if numbers == "none":
        return {"text": text}
    ids: list[JsonValue] = [min(int(chance.paretovariate(0.6)), VOCABULARY) for _ in range(tokens)]
    drawn = [
        -round(chance.expovariate(2), 6) if chance.random() < 0.5 else -round(chance.random() / 1000, 9)
        for _ in range(tokens)
    ]
    logprobs: list[JsonValue] = [*(array("f", drawn) if numbers == "singles" else drawn)]
    return {"text": text, "token_ids": ids, "logprobs": logprobs}


@dataclass(frozen=True)
class Timed:
    """Of one round, in seconds."""

    bare: float
    served: float
    livez: float
    idle_livez: float


@dataclass(frozen=True)
class Row:
    store: str
    tokens: int
    numbers: Numbers
    sent: float
    stored: float
    """Both in bytes a group."""
    rounds: tuple[Timed, ...]
    group_seconds: Sequence[float]
    page_seconds: Sequence[float]

    @property
    def name(self) -> str:
        return f"{self.store}, {self.tokens:,} tokens, {LOGPROBS[self.numbers]}"


@dataclass(frozen=True)
class Gateways:
    store: str
    database: str
    url: str
    idle: str

    def count_bytes(self) -> int:
        """Of the tables, their long values and their indexes."""
        now = round(time.time() * 1e6)
        return sum(table.bytes for table in measure_database(self.database, MIGRATIONS, now).tables)


def read_and_compress(body: bytes) -> None:
    from_json(body)
    zstandard.ZstdCompressor(level=LEVEL).compress(body)


def measure_seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run_round(gateways: Gateways, client: httpx.Client, body: bytes) -> tuple[Timed, str]:
    """Also the id of the group."""
    bare = measure_seconds(lambda: read_and_compress(body))
    replies: list[httpx.Response] = []

    def score() -> None:
        replies.append(client.post("/score", content=body, headers={"Content-Type": "application/json"}))

    with asking_livez(gateways.idle) as idle, asking_livez(gateways.url) as waits:
        served = measure_seconds(score)
    group_id: str = replies[0].raise_for_status().json()["groups"][0]["group_id"]
    return Timed(bare, served, waits.longest, idle.longest), group_id


def time_page(client: httpx.Client, path: str) -> list[float]:
    return [measure_seconds(lambda: client.get(path).raise_for_status()) for _ in range(PAGE_TURNS)]


def measure_case(gateways: Gateways, client: httpx.Client, tokens: int, numbers: Numbers, tasks: Sequence[str]) -> Row:
    chance = random.Random(tokens)
    completions = [make_completion(chance, tokens, numbers) for _ in range(GROUP_SIZE)]
    given = json.dumps(completions)
    before, rounds, sent, group_id = gateways.count_bytes(), [], 0, ""
    for task in tasks:
        body = f'{{"run": "{numbers}", "groups": [{{"task_id": "{task}", "completions": {given}}}]}}'.encode()
        timed, group_id = run_round(gateways, client, body)
        rounds.append(timed)
        sent += len(body)
    stored = gateways.count_bytes() - before
    pages = [time_page(client, f"{path}/{group_id}") for path in ("/groups", "/view/groups")]
    return Row(gateways.store, tokens, numbers, sent / len(tasks), stored / len(tasks), tuple(rounds), *pages)


def measure_store(gateways: Gateways) -> Iterator[Row]:
    with httpx.Client(base_url=gateways.url, timeout=600) as client:
        asked = {"batch_size": ROUNDS * len(CASES), "cursor": 0}
        handed = client.post("/envs/gsm8k/next-batch", json=asked).raise_for_status().json()["tasks"]
        tasks = [task["task_id"] for task in handed]
        client.get(f"/view/tasks/{tasks[0]}")  # the first page takes templates with it
        for place, (tokens, numbers) in enumerate(CASES):
            tell_progress(f"{gateways.store}, {tokens:,} tokens, {LOGPROBS[numbers]}: {ROUNDS} rounds")
            yield measure_case(gateways, client, tokens, numbers, tasks[place * ROUNDS : (place + 1) * ROUNDS])


def measure() -> list[BenchmarkFigure]:
    rows: list[Row] = []
    for store in ("SQLite", "PostgreSQL"):
        with ExitStack() as opened:
            folder, other = (Path(opened.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
            url = f"sqlite:///{folder}/store.db" if store == "SQLite" else opened.enter_context(running_postgres())
            settings = {"ATROPOS_ENVS_DATABASE_URL": url}
            served = opened.enter_context(serving(folder, settings=settings, migrated=False))
            idle = opened.enter_context(serving(other))
            rows += measure_store(Gateways(store, url, served.url, idle.url))
    return [figure for row in rows for figure in _list_figures(row)]


def _list_figures(row: Row) -> Iterator[BenchmarkFigure]:
    of = partial(BenchmarkFigure.of, row.name)
    yield of([row.sent / 1e6], "MB", column="a group, sent")
    yield of([row.stored / 1e6], "MB", column="stored")
    yield of([row.sent / one.served / 1e6 for one in row.rounds], "MB/s", column="scored")
    yield of([row.sent / one.bare / 1e6 for one in row.rounds], "MB/s", column="parsed and compressed alone")
    yield of([one.bare / one.served for one in row.rounds], column="ratio")
    waits, idle = ([getattr(one, name) * 1e3 for one in row.rounds] for name in ("livez", "idle_livez"))
    yield of([max(waits)], "ms", at_most=MOST_MILLISECONDS, column="longest `/livez`")
    yield of([max(idle)], "ms", column="of an idle gateway")
    for name, seconds in (("/groups/{id}", row.group_seconds), ("/view/groups/{id}", row.page_seconds)):
        yield of([one * 1e3 for one in seconds], "ms", column=f"`{name}`")


if __name__ == "__main__":
    run("long_completions", measure)
