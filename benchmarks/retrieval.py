"""Searching 100,000 events of a world at any moment of its history while 500 a second are told, on both databases;
beside it what each database's own full-text search takes for a part of the same question: FTS5 with `bm25()`, and a GIN
index of tsvectors with `ts_rank()`. `python -m benchmarks.retrieval [sqlite | postgresql] [without_peers]`
"""

import asyncio
import itertools
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import httpx
import psycopg

from app.domain.search_terms import extract_terms
from app.domain.worlds import Event, EventSearch
from app.store.event_candidates import COMMON_TERM_COUNT
from app.store.store import Store
from benchmarks.results import read_arguments
from tests.support.databases import MIGRATIONS, Postgres, running_postgres
from tests.support.serving import serving

EVENTS = 100_000
TOLD_OVER_HTTP = 20_000
BATCH = 100
AT_ONCE = 4
"""Batches that are told at the same time."""
TOLD_A_SECOND = 500
MEANWHILE = 30_000
"""Events that are ready to be told while it is searched: enough for a minute."""
SEARCHES = 400
WANTED_MILLISECONDS = 30

BEGIN: Final = datetime(1300, 1, 1, tzinfo=UTC)
DAYS: Final = 365
WORDS: Final = 8_000
PEOPLE: Final = tuple(f"person-{number}" for number in range(200))
CIRCLES: Final = tuple(f"circle-{number}" for number in range(20))
KANJI: Final = tuple(chr(first) for first in range(0x4E00, 0x4E00 + 600))


MOST: Final = 30
"""Events for each way of finding them: as many as are asked for where a prompt has room for 600 tokens of them."""


@dataclass(frozen=True)
class Asked:
    at: datetime
    names: frozenset[str]
    terms: tuple[str, ...]


@dataclass
class Measured:
    """Seconds of each search: `alone`, and `busy` while events are told. The peer's are without that."""

    told_a_second: float = 0.0
    cpu_microseconds: float = 0.0
    """Processor time of an event that is told, without that of a database server."""
    over_http: float = 0.0
    """Events a second that a service of one process takes, in a world that was empty."""
    megabytes: float = 0.0
    alone: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    told_meanwhile: float = 0.0
    """Events a second while it was searched."""


@dataclass
class Peer:
    """A database's own full-text search for the 64 best at a moment, for somebody: of all terms of a question, and of
    those that are not common, which it is told for nothing."""

    told_a_second: float = 0.0
    all_terms: list[float] = field(default_factory=list)
    rare_terms: list[float] = field(default_factory=list)


class Chronicle:
    """Events whose words are as common as words are: the nth occurs about 1/n as often as the first."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        spelling = random.Random(7)
        syllables = [a + b for a in "bdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "or")]
        self._words = ["".join(spelling.choices(syllables, k=2 + n % 2)) + str(n % 7) for n in range(WORDS)]
        self._weights = list(itertools.accumulate(1 / (n + 3) for n in range(WORDS)))
        self._numbers = itertools.count()

    def words(self, count: int) -> list[str]:
        return self._random.choices(self._words, cum_weights=self._weights, k=count)

    def event(self) -> Event:
        number = next(self._numbers)
        text = " ".join(self.words(self._random.randint(8, 30)))
        if number % 20 == 0:
            text = "".join(self._random.choices(KANJI, k=25))
        return Event(
            id=f"e{number}-{self._random.getrandbits(32)}",
            time=self.moment(),
            text=text,
            kind=self._random.choice(("quest", "rumour", "trade", "fight")),
            location=self._random.choice(CIRCLES),
            actors=tuple(self._random.sample(PEOPLE, 2)),
            visibility="public" if self._random.random() < 0.7 else self._names(),
            importance=min(10, int(self._random.expovariate(0.4))),
        )

    def moment(self, after_days: int = 0) -> datetime:
        return BEGIN + timedelta(seconds=self._random.randrange(after_days * 86_400, DAYS * 86_400))

    def asked(self) -> Asked:
        """A line of 20 words, as players and characters say them, and one in Japanese now and then."""
        said = " ".join(self.words(20))
        if self._random.random() < 0.1:
            said = "".join(self._random.choices(KANJI, k=12))
        names = {self._random.choice(PEOPLE), *self._random.sample(CIRCLES, 3)}
        return Asked(self.moment(after_days=5), frozenset(names), tuple(dict.fromkeys(extract_terms(said))))

    def _names(self) -> tuple[str, ...]:
        people = self._random.sample(PEOPLE, self._random.randint(0, 3))
        return (*people, *self._random.sample(CIRCLES, self._random.randint(0 if people else 1, 2)))


def measure(url: str, size: Callable[[], float], settle: Callable[[], None] = lambda: None) -> Measured:
    """`settle` is what a database does by itself some time after much was written."""
    return asyncio.run(_measure(url, size, settle))


async def _measure(url: str, size: Callable[[], float], settle: Callable[[], None]) -> Measured:
    found = Measured()
    store = await asyncio.to_thread(Store.open, url, MIGRATIONS)
    try:
        began = time.process_time()
        found.told_a_second = await _fill(store)
        found.cpu_microseconds = (time.process_time() - began) / EVENTS * 1e6
        found.megabytes = size()
        await asyncio.to_thread(settle)
        questions = Chronicle(2)
        asked = [questions.asked() for _ in range(SEARCHES)]
        await _search(store, asked[:50])
        found.alone = await _search(store, asked)
        chronicle = Chronicle(3)
        batches = [[chronicle.event() for _ in range(BATCH // 2)] for _ in range(MEANWHILE // (BATCH // 2))]
        telling = asyncio.create_task(_tell_steadily(store, batches))
        found.busy = await _search(store, asked)
        telling.cancel()
        found.told_meanwhile = await telling
    finally:
        await store.close()
    return found


async def _fill(store: Store) -> float:
    chronicle = Chronicle(1)
    batches = [[chronicle.event() for _ in range(BATCH)] for _ in range(EVENTS // BATCH)]
    began = time.perf_counter()
    for first in range(0, len(batches), AT_ONCE):
        await asyncio.gather(*(store.events.add_events("town", batch) for batch in batches[first : first + AT_ONCE]))
    return EVENTS / (time.perf_counter() - began)


def tell_over_http(url: str, folder: Path) -> float:
    """Events a second."""
    chronicle = Chronicle(4)
    batches = [
        [chronicle.event().model_dump(mode="json") for _ in range(BATCH)] for _ in range(TOLD_OVER_HTTP // BATCH)
    ]
    bodies = iter([json.dumps({"events": batch}).encode() for batch in batches])
    with serving(folder, python=sys.executable, settings={"ATROPOS_ENVS_DATABASE_URL": url}) as gateway:
        return asyncio.run(_post_bodies(f"{gateway.url}/worlds/http/events", bodies))


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
        found = await store.events.search(EventSearch("town", one.at, one.names, one.terms, most=MOST))
        seconds.append(time.perf_counter() - began)
        if found is None or not found.visible:
            raise RuntimeError("nothing found")
        await asyncio.sleep(0.01)
    return seconds


async def _tell_steadily(store: Store, batches: Sequence[Sequence[Event]]) -> float:
    """Until it is cancelled; events a second."""
    began, told = time.perf_counter(), 0
    try:
        for batch in batches:
            await store.events.add_events("town", batch)
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
    found = Peer()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + FTS5_TABLES)
    known: Counter[str] = Counter()
    seconds = 0.0
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
        seconds += time.perf_counter() - began
        known.update(term for _, each in words for term in set(each))
    found.told_a_second = EVENTS / seconds

    def ask(one: Asked, chosen: Sequence[str]) -> None:
        match = " OR ".join(f'"{term}"' for term in chosen)
        names = json.dumps(["*", *one.names])
        connection.execute(FTS5_QUERY, (match, one.at.timestamp(), names)).fetchall()

    _ask_both(found, known, ask)
    connection.close()
    return found


def tsvector(url: str) -> Peer:
    found = Peer()
    known: Counter[str] = Counter()
    seconds = 0.0
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
            seconds += time.perf_counter() - began
            known.update(term for _, _, _, each in rows for term in set(each))
        found.told_a_second = EVENTS / seconds
        connection.execute("VACUUM ANALYZE told")

        def ask(one: Asked, chosen: Sequence[str]) -> None:
            question = " | ".join(f"'{term}'" for term in chosen)
            connection.execute(TSVECTOR_QUERY.encode(), (question, one.at, ["*", *one.names])).fetchall()

        _ask_both(found, known, ask)
    return found


def _batches() -> Iterator[tuple[int, list[Event]]]:
    chronicle = Chronicle(1)
    for first in range(1, EVENTS + 1, BATCH):
        yield first, [chronicle.event() for _ in range(BATCH)]


def _ask_both(found: Peer, known: Mapping[str, int], ask: Callable[[Asked, Sequence[str]], None]) -> None:
    questions = Chronicle(2)
    for one in [questions.asked() for _ in range(SEARCHES)]:
        rare = [term for term in one.terms if known.get(term, 0) < COMMON_TERM_COUNT] or list(one.terms[:1])
        for seconds, chosen in ((found.all_terms, one.terms), (found.rare_terms, rare)):
            began = time.perf_counter()
            ask(one, chosen)
            seconds.append(time.perf_counter() - began)


def percentile(seconds: Iterable[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main(arguments: Collection[str] = ()) -> None:
    wanted = set(arguments) - {"without_peers"} or {"sqlite", "postgresql"}
    peers = "without_peers" not in arguments
    with tempfile.TemporaryDirectory() as folder:
        if "sqlite" in wanted:
            path = Path(folder) / "store.db"
            found = measure(f"sqlite:///{path}", lambda: path.stat().st_size / 1e6)
            found.over_http = tell_over_http(f"sqlite:///{path}", Path(folder))
            report("SQLite", "FTS5", found, fts5(Path(folder) / "peer.db") if peers else None)
        if "postgresql" in wanted:
            with running_postgres() as server:
                databases = Postgres(server)
                url = databases.migrated()
                found = measure(url, lambda: _size(url), lambda: _vacuum(url))
                found.over_http = tell_over_http(url, Path(folder))
                report("PostgreSQL", "tsvector", found, tsvector(databases.empty()) if peers else None)


def _vacuum(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _size(url: str) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return float(row[0]) / 1e6 if row else 0.0


def report(database: str, peer_name: str, found: Measured, peer: Peer | None) -> None:
    print(f"{database}: {EVENTS} events, {found.megabytes:.0f} MB")
    told = f"{found.told_a_second:8.0f} events/s, {found.cpu_microseconds:.0f} µs of processor time each"
    print(
        f"  told in batches of {BATCH}        {told}" + (f"   ({peer_name} {peer.told_a_second:.0f})" if peer else "")
    )
    print(f"  the same over HTTP           {found.over_http:8.0f} events/s")
    busy = f"search while {found.told_meanwhile:.0f} are told a second"
    rows = [("search", found.alone), (busy, found.busy)]
    if peer:
        rows += [(f"{peer_name}, all terms", peer.all_terms), (f"{peer_name}, rare terms", peer.rare_terms)]
    for name, seconds in rows:
        p50, p95, p99 = (percentile(seconds, share) * 1e3 for share in (0.5, 0.95, 0.99))
        wanted = f"   (p95 of at most {WANTED_MILLISECONDS} ms is wanted)" if name == busy else ""
        print(f"  {name:38} p50 / p95 / p99   {p50:.1f} / {p95:.1f} / {p99:.1f} ms{wanted}")
    if peer:
        print(f"  p95 / the peer's, rare terms: {percentile(found.busy, 0.95) / percentile(peer.rare_terms, 0.95):.2f}")


if __name__ == "__main__":
    main(read_arguments())
