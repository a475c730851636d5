"""Searching 100,000 events of a world at any moment of its history while 500 a second are told, on both databases;
beside it what each database's own full-text search takes for a part of the same question: FTS5 with `bm25()`, and a GIN
index of tsvectors with `ts_rank()`. `python -m benchmarks.retrieval [sqlite | postgresql] [without_peers] [--record]`
takes some five minutes.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import psycopg

from app.cli.serve import tune_garbage_collection
from app.domain.worlds import Event, EventSearch, extract_terms
from app.features.worlds.store import SqlEventStore
from app.features.worlds.store_search import COMMON_TERM_COUNT
from app.main.store import Store
from benchmarks.chronicles import Asked, Chronicle
from benchmarks.results import BenchmarkFigure, count_rounds, read_arguments, run, tell_progress
from tests.support.databases import MIGRATIONS, Postgres, running_postgres
from tests.support.serving import serving

EVENTS = 100_000
ROUNDS = 3
"""Of searches, alone and beside telling; and portions of what else is measured."""
TOLD_OVER_HTTP = 7_000
"""Of a round."""
BATCH = 100
AT_ONCE = 4
"""Batches that are told at the same time."""
TOLD_A_SECOND = 500
PEERS: Final = "FTS5, tsvector"
MEANWHILE = 30_000
"""Events that are ready to be told while it is searched: enough for a minute."""
SEARCHES = 400
PEER_SEARCHES = 120
"""Each of which takes as long as ten of ours."""
MOST_MILLISECONDS = 30
LEAST_TOLD = 5_000
"""Events a second on SQLite."""

MOST: Final = 30
"""Events for each way of finding them: as many as are asked for where a prompt has room for 600 tokens of them."""


@dataclass
class Measured:
    """A value a round, or the seconds of its searches: `alone`, and `busy` while events are told."""

    told_a_second: list[float] = field(default_factory=list)
    cpu_microseconds: list[float] = field(default_factory=list)
    """Processor time of an event that is told, without that of a database server."""
    over_http: list[float] = field(default_factory=list)
    """Events a second that a service of one process takes, in a world that was empty."""
    megabytes: float = 0.0
    alone: list[list[float]] = field(default_factory=list)
    busy: list[list[float]] = field(default_factory=list)
    told_meanwhile: list[float] = field(default_factory=list)
    """Events a second while it was searched."""


@dataclass
class Peer:
    """A database's own full-text search for the 64 best at a moment, for somebody: of all terms of a question, and of
    those that are not common, which it is told for nothing."""

    told_a_second: list[float] = field(default_factory=list)
    all_terms: list[float] = field(default_factory=list)
    rare_terms: list[float] = field(default_factory=list)


def measure_store(url: str, size: Callable[[], float], settle: Callable[[], None] = lambda: None) -> Measured:
    """`settle` is what a database does by itself some time after much was written."""
    return asyncio.run(_measure(url, size, settle))


async def _measure(url: str, size: Callable[[], float], settle: Callable[[], None]) -> Measured:
    found = Measured()
    store = await asyncio.to_thread(Store.open, url, MIGRATIONS)
    try:
        await _fill(store, found)
        found.megabytes = size()
        await asyncio.to_thread(settle)
        questions = Chronicle(2)
        asked = [questions.asked() for _ in range(SEARCHES)]
        await _search(store, asked[:50])
        chronicle = Chronicle(3)
        batches = iter([[chronicle.event() for _ in range(BATCH // 2)] for _ in range(MEANWHILE // (BATCH // 2))])
        for _ in count_rounds("searches", ROUNDS):
            found.alone.append(await _search(store, asked))
            telling = asyncio.create_task(_tell_steadily(store, batches))
            found.busy.append(await _search(store, asked))
            telling.cancel()
            found.told_meanwhile.append(await telling)
    finally:
        await store.close()
    return found


async def _fill(store: Store, found: Measured) -> None:
    chronicle = Chronicle(1)
    for _ in count_rounds(f"telling {EVENTS:,} events", ROUNDS):
        batches = [[chronicle.event() for _ in range(BATCH)] for _ in range(EVENTS // BATCH // ROUNDS)]
        began, used = time.perf_counter(), time.process_time()
        for first in range(0, len(batches), AT_ONCE):
            await asyncio.gather(
                *(store.part(SqlEventStore).add_events("town", one) for one in batches[first : first + AT_ONCE])
            )
        told = BATCH * len(batches)
        found.cpu_microseconds.append((time.process_time() - used) / told * 1e6)
        found.told_a_second.append(told / (time.perf_counter() - began))


def tell_over_http(url: str, folder: Path) -> list[float]:
    """Events a second."""
    chronicle = Chronicle(4)
    found = []
    with serving(folder, python=sys.executable, settings={"ATROPOS_ENVS_DATABASE_URL": url}) as gateway:
        for _ in count_rounds("telling over HTTP", ROUNDS):
            batches = [
                [chronicle.event().model_dump(mode="json") for _ in range(BATCH)]
                for _ in range(TOLD_OVER_HTTP // BATCH)
            ]
            bodies = iter([json.dumps({"events": batch}).encode() for batch in batches])
            found.append(asyncio.run(_post_bodies(f"{gateway.url}/worlds/http/events", bodies)))
    return found


async def _post_bodies(url: str, bodies: Iterator[bytes]) -> float:
    async def post(client: httpx.AsyncClient) -> None:
        for body in bodies:
            (await client.post(url, content=body, headers={"Content-Type": "application/json"})).raise_for_status()

    async with httpx.AsyncClient(timeout=60) as client:
        began = time.perf_counter()
        await asyncio.gather(*(post(client) for _ in range(AT_ONCE)))
        return TOLD_OVER_HTTP / (time.perf_counter() - began)


async def _search(store: Store, asked: Sequence[Asked]) -> list[float]:
    seconds = []
    for one in asked:
        began = time.perf_counter()
        found = await store.part(SqlEventStore).search(EventSearch("town", one.at, one.names, one.terms, most=MOST))
        seconds.append(time.perf_counter() - began)
        if found is None or not found.visible:
            raise RuntimeError("nothing found")
        await asyncio.sleep(0.01)
    return seconds


async def _tell_steadily(store: Store, batches: Iterator[Sequence[Event]]) -> float:
    """Until it is cancelled; events a second."""
    began, told = time.perf_counter(), 0
    try:
        for batch in batches:
            await store.part(SqlEventStore).add_events("town", batch)
            told += len(batch)
            await asyncio.sleep(max(0.0, told / TOLD_A_SECOND - (time.perf_counter() - began)))
    except asyncio.CancelledError:
        pass
    return told / (time.perf_counter() - began)


FTS5_TABLES: Final = """
    CREATE TABLE told (sequence INTEGER PRIMARY KEY, time INTEGER);
    CREATE TABLE scopes (scope TEXT, sequence INTEGER, PRIMARY KEY (sequence, scope)) WITHOUT ROWID;
    CREATE VIRTUAL TABLE words USING fts5(body, content='', tokenize='unicode61');
"""
FTS5_QUERY: Final = """
    SELECT told.sequence FROM words JOIN told ON told.sequence = words.rowid
    WHERE words MATCH ? AND told.time <= ? AND EXISTS (
        SELECT 1 FROM scopes WHERE scopes.sequence = told.sequence AND scope IN (SELECT value FROM json_each(?))
    ) ORDER BY bm25(words) LIMIT 64
"""
TSVECTOR_TABLES: Final = """
    CREATE TABLE told (sequence bigint PRIMARY KEY, time timestamptz, scopes text[], words tsvector);
    CREATE INDEX ON told USING gin (words);
"""
TSVECTOR_QUERY: Final = """
    SELECT sequence FROM told, to_tsquery('simple', %s) AS question
    WHERE words @@ question AND time <= %s AND scopes && %s ORDER BY ts_rank(words, question) DESC LIMIT 64
"""


def scopes_of(event: Event) -> list[str]:
    return ["*"] if event.visibility == "public" else list(event.visibility)


def fts5(path: Path) -> Peer:
    tell_progress("FTS5")
    found = Peer()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + FTS5_TABLES)
    known: Counter[str] = Counter()
    seconds: list[float] = []
    for first, batch in _batches():
        rows = list(enumerate(batch, start=first))
        began = time.perf_counter()
        words = [(sequence, extract_terms(event.searchable_text)) for sequence, event in rows]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO told VALUES (?, ?)", [(n, event.time.timestamp()) for n, event in rows])
        scopes = [(scope, n) for n, event in rows for scope in scopes_of(event)]
        connection.executemany("INSERT INTO scopes VALUES (?, ?)", scopes)
        connection.executemany(
            "INSERT INTO words (rowid, body) VALUES (?, ?)", [(n, " ".join(each)) for n, each in words]
        )
        connection.execute("COMMIT")
        seconds.append(time.perf_counter() - began)
        known.update(term for _, each in words for term in set(each))
    found.told_a_second = _count_told(seconds)

    def ask(one: Asked, chosen: Sequence[str]) -> None:
        match = " OR ".join(f'"{term}"' for term in chosen)
        names = json.dumps(["*", *one.names])
        connection.execute(FTS5_QUERY, (match, one.at.timestamp(), names)).fetchall()

    _ask_both(found, known, ask)
    connection.close()
    return found


def tsvector(url: str) -> Peer:
    tell_progress("tsvector")
    found = Peer()
    known: Counter[str] = Counter()
    seconds: list[float] = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TSVECTOR_TABLES.encode())
        for first, batch in _batches():
            began = time.perf_counter()
            rows = [
                (n, event.time, scopes_of(event), list(extract_terms(event.searchable_text)))
                for n, event in enumerate(batch, first)
            ]
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany("INSERT INTO told VALUES (%s, %s, %s, array_to_tsvector(%s::text[]))", rows)
            seconds.append(time.perf_counter() - began)
            known.update(term for _, _, _, each in rows for term in set(each))
        found.told_a_second = _count_told(seconds)
        connection.execute("VACUUM ANALYZE told")

        def ask(one: Asked, chosen: Sequence[str]) -> None:
            question = " | ".join(f"'{term}'" for term in chosen)
            connection.execute(TSVECTOR_QUERY.encode(), (question, one.at, ["*", *one.names])).fetchall()

        _ask_both(found, known, ask)
    return found


def _count_told(seconds: Sequence[float]) -> list[float]:
    """Events a second, of portions of the batches that took so long."""
    size = len(seconds) // ROUNDS
    return [size * BATCH / sum(seconds[number * size : (number + 1) * size]) for number in range(ROUNDS)]


def _batches() -> Iterator[tuple[int, list[Event]]]:
    chronicle = Chronicle(1)
    for first in range(1, EVENTS + 1, BATCH):
        yield first, [chronicle.event() for _ in range(BATCH)]


def _ask_both(found: Peer, known: Mapping[str, int], ask: Callable[[Asked, Sequence[str]], None]) -> None:
    questions = Chronicle(2)
    for one in [questions.asked() for _ in range(PEER_SEARCHES)]:
        rare = [term for term in one.terms if known.get(term, 0) < COMMON_TERM_COUNT] or list(one.terms[:1])
        for seconds, chosen in ((found.all_terms, one.terms), (found.rare_terms, rare)):
            began = time.perf_counter()
            ask(one, chosen)
            seconds.append(time.perf_counter() - began)


def percentile(seconds: Iterable[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(chosen: Collection[str] = ()) -> list[BenchmarkFigure]:
    tune_garbage_collection()  # as the service does it
    wanted = set(chosen) - {"without_peers"} or {"sqlite", "postgresql"}
    has_peers = "without_peers" not in chosen
    figures: list[BenchmarkFigure] = []
    with tempfile.TemporaryDirectory() as folder:
        if "sqlite" in wanted:
            path = Path(folder) / "store.db"
            found = measure_store(f"sqlite:///{path}", lambda: path.stat().st_size / 1e6)
            found.over_http = tell_over_http(f"sqlite:///{path}", Path(folder))
            figures += _list_figures("SQLite", found, LEAST_TOLD)
            figures += _list_peer("SQLite", fts5(Path(folder) / "peer.db")) if has_peers else ()
        if "postgresql" in wanted:
            with running_postgres() as server:
                databases = Postgres(server)
                url = databases.migrated()
                found = measure_store(url, lambda: _size(url), lambda: _vacuum(url))
                found.over_http = tell_over_http(url, Path(folder))
                figures += _list_figures("PostgreSQL", found)
                figures += _list_peer("PostgreSQL", tsvector(databases.empty())) if has_peers else ()
    return figures


def _vacuum(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _size(url: str) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return float(row[0]) / 1e6 if row else 0.0


def _list_figures(database: str, found: Measured, least_told: float | None = None) -> Iterator[BenchmarkFigure]:
    def of(what: str, values: Sequence[float], unit: str, **bounds: float | None) -> BenchmarkFigure:
        return BenchmarkFigure.of(what, values, unit, column=database, **bounds)

    yield of(f"told in batches of {BATCH}", found.told_a_second, "events/s", at_least=least_told)
    yield of("the same over HTTP", found.over_http, "events/s", at_least=least_told)
    yield of("processor time of an event that is told", found.cpu_microseconds, "µs")
    yield of(f"{EVENTS:,} events on the disk", [found.megabytes], "MB")
    busy = f"a search while {TOLD_A_SECOND} events a second are told"
    for what, rounds, most in (("a search", found.alone, None), (busy, found.busy, MOST_MILLISECONDS)):
        for share in (0.5, 0.95):
            waits = [percentile(one, share) * 1e3 for one in rounds]
            yield of(f"{what}, p{share * 100:.0f}", waits, "ms", at_most=most if share > 0.5 else None)
    yield of("told meanwhile", found.told_meanwhile, "events/s")


def _list_peer(database: str, peer: Peer) -> Iterator[BenchmarkFigure]:
    yield BenchmarkFigure.of(f"{PEERS}: told", peer.told_a_second, "events/s", column=database)
    for what, seconds in (("all terms", peer.all_terms), ("rare terms", peer.rare_terms)):
        for share in (0.5, 0.95):
            waits = [percentile(seconds[number::ROUNDS], share) * 1e3 for number in range(ROUNDS)]
            yield BenchmarkFigure.of(f"{PEERS}: {what}, p{share * 100:.0f}", waits, "ms", column=database)


def main() -> None:
    words = read_arguments()
    chosen = [word for word in words if word != "--record"]
    run("retrieval", partial(measure, chosen), words, " ".join(chosen))


if __name__ == "__main__":
    main()
