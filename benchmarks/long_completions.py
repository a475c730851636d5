"""Groups of 16 completions of 8,000 and 32,000 tokens: `python -m benchmarks.long_completions`.

In each round a group is sent to a gateway on SQLite or PostgreSQL, and the same bytes are parsed and compressed by this
process alone, which is the limit: whoever stores such a body must do both. Meanwhile `/livez` of the gateway is asked
for, and that of a second one that gets nothing. Then the pages of the last group are read, and the tables are measured.

Texts are words of this project's documents; ids are drawn as frequent and rare words are, and half of the logprobs are
nearly zero, as those of a trained model. `singles` are logprobs as inference servers compute them, in single precision;
`decimals` are rounded to six to nine digits."""

import json
import random
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path
from typing import Final, Literal

import httpx
import zstandard
from pydantic import JsonValue
from pydantic_core import from_json

from app.store.database_size import measure_database
from benchmarks.results import read_arguments
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
VOCABULARY: Final = 150_000
TOKENS_PER_WORD: Final = 1.75
WORDS: Final = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8").split()
LEVEL: Final = 3
MOST_SECONDS: Final = 0.2


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
    group_seconds: float
    page_seconds: float

    @property
    def ratios(self) -> list[float]:
        return [one.bare / one.served for one in self.rounds]

    def spread(self, choose: Callable[[Timed], float]) -> str:
        """Megabytes a second: the median, the least and the most."""
        found = sorted(self.sent / choose(one) / 1e6 for one in self.rounds)
        return f"{statistics.median(found):.0f} ({found[0]:.0f} to {found[-1]:.0f})"


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


def time_page(client: httpx.Client, path: str) -> float:
    return statistics.median(measure_seconds(lambda: client.get(path).raise_for_status()) for _ in range(3))


def measure(gateways: Gateways, client: httpx.Client, tokens: int, numbers: Numbers, tasks: Sequence[str]) -> Row:
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
            yield measure(gateways, client, tokens, numbers, tasks[place * ROUNDS : (place + 1) * ROUNDS])


def print_row(row: Row) -> None:
    waits, idle = max(one.livez for one in row.rounds), max(one.idle_livez for one in row.rounds)
    cells = (
        *(row.store, f"{row.tokens:,}", row.numbers, f"{row.sent / 1e6:.2f}", f"{row.stored / 1e6:.2f}"),
        f"{row.stored / GROUP_SIZE / 1e3:.0f}",
        *(row.spread(lambda one: one.served), row.spread(lambda one: one.bare)),
        f"{statistics.median(row.ratios):.2f} ({min(row.ratios):.2f} to {max(row.ratios):.2f})",
        f"{waits * 1e3:.0f}, {idle * 1e3:.0f}",
        f"{row.group_seconds * 1e3:.0f}, {row.page_seconds * 1e3:.0f}",
    )
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> int:
    """Whether `/livez` kept others waiting."""
    print(f"{ROUNDS} groups of {GROUP_SIZE} in each case, load {getloadavg()[0]:.1f} at the start\n")
    print(
        "| store | tokens | logprobs | sent, MB a group | stored, MB a group | stored, kB a completion | scored, MB/s"
        " | read and compressed, MB/s | ratio | longest `/livez`, of an idle gateway, ms | group, page, ms |"
    )
    print(f"|{' --- |' * 11}")
    longest = 0.0
    for store in ("SQLite", "PostgreSQL"):
        with ExitStack() as opened:
            folder, other = (Path(opened.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
            url = f"sqlite:///{folder}/store.db" if store == "SQLite" else opened.enter_context(running_postgres())
            settings = {"ATROPOS_ENVS_DATABASE_URL": url}
            served = opened.enter_context(serving(folder, settings=settings, migrated=False))
            idle = opened.enter_context(serving(other))
            for row in measure_store(Gateways(store, url, served.url, idle.url)):
                print_row(row)
                longest = max(longest, *(one.livez for one in row.rounds))
    print(f"\nload {getloadavg()[0]:.1f} at the end; `/livez` was late by {longest * 1e3:.0f} ms at most")
    return int(longest > MOST_SECONDS)


if __name__ == "__main__":
    read_arguments()
    sys.exit(main())
