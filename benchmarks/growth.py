"""What a gateway takes over a large store, over what it takes over a nearly empty one of the same shape.

`python -m benchmarks.growth [--rollouts N] [--postgres-rollouts N] [--rounds N] [--only TEXT …] [--record]` makes
the stores once, and keeps them in `.cache/growth` until how they are made has changed: ten million rollouts on SQLite
take ten minutes and 15 GB, two million on PostgreSQL twice as long and 3 GB. Both are served, and asked in turns: 20
minutes in all. What trainers, lists, pages of groups and exports ask is asked three times a round.
`--record` keeps what was measured, unless `--only` is given.
"""

import argparse
import asyncio
import hashlib
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

import benchmarks.grown_stores
import benchmarks.seeded_stores
from app.main.store import Store
from app.store.migration import migrate
from benchmarks.grown_stores import grow
from benchmarks.growth_routes import POLICY, Side, list_calls
from benchmarks.results import BenchmarkFigure, count_rounds, run, tell_progress
from benchmarks.seeded_stores import SEEDED, seed
from tests.support.databases import MIGRATIONS, read_migrated_store, running_server
from tests.support.serving import ROOT, Served, serving

KEPT: Final = ROOT / ".cache" / "growth"
FEW: Final = 16
"""Copies in the small store: so many that pages and what is drawn from them are full."""
INDEXED_AT_ONCE: Final = 500
MOST: Final = 1.5
MOST_OF_START: Final = 2.0
MOST_OF_A_PAGE: Final = 300.0
"""Milliseconds of a page of the viewer, at p95."""
WARMING: Final = 3
"""Rounds that are not counted."""

Times = Mapping[str, tuple[list[float], list[float]]]
"""Seconds by route, of the small store and of the large one."""


@dataclass(frozen=True)
class KeptStores:
    few: str
    many: str
    many_rollouts: int
    folder: Path
    """For what is written beside the stores."""


@contextmanager
def keep_sqlite(rollouts: int) -> Iterator[KeptStores]:
    copies = max(2, round(rollouts / SEEDED))
    with _keeping("sqlite", copies) as folder, tempfile.TemporaryDirectory() as name:
        few, many = folder / "few.db", folder / "many.db"
        if not many.exists():
            few.write_bytes(read_migrated_store())
            seed(folder, f"sqlite:///{few}")
            part = Path(shutil.copy(few, folder / "part.db"))
            grow(f"sqlite:///{few}", FEW, tell_progress)
            grow(f"sqlite:///{part}", copies, tell_progress)
            part.rename(many)
        urls = f"sqlite:///{shutil.copy(few, name)}", f"sqlite:///{many}"
        _prepare(*urls)
        yield KeptStores(*urls, SEEDED * copies, Path(name))


@contextmanager
def keep_postgres(rollouts: int) -> Iterator[KeptStores]:
    copies = max(2, round(rollouts / SEEDED))
    with (
        _keeping("postgresql", copies) as folder,
        running_server(folder / "data") as server,
        tempfile.TemporaryDirectory() as name,
    ):
        url, done = server.get_uri(), folder / "done"
        seeded, few, many = (url.replace("/postgres?", f"/{one}?") for one in ("seeded", "few", "many"))
        if not done.exists():
            _create_database(url, "seeded")
            migrate(seeded, MIGRATIONS)
            seed(folder, seeded)
            _create_database(url, "many", "seeded")
            for grown, times in ((many, copies), (seeded, FEW)):
                grow(grown, times, tell_progress)
                _lay_together(grown)
            done.touch()
        _create_database(url, "few", "seeded")
        _prepare(few, many)
        yield KeptStores(few, many, SEEDED * copies, Path(name))


@contextmanager
def _keeping(kind: str, copies: int) -> Iterator[Path]:
    """A folder by how stores are made. Those of other versions go, and what was not made to its end."""
    made_by = (benchmarks.grown_stores, benchmarks.seeded_stores)
    sources = b"".join(Path(str(module.__file__)).read_bytes() for module in made_by)
    version = f"{kind}-{hashlib.sha256(sources).hexdigest()[:8]}-"
    folder = KEPT / f"{version}{copies}"
    folder.mkdir(parents=True, exist_ok=True)
    for found in KEPT.glob(f"{kind}-*"):
        is_whole = (found / "many.db").exists() or (found / "done").exists()
        if not found.name.startswith(version) or not is_whole:
            shutil.rmtree(found)
    folder.mkdir(exist_ok=True)
    yield folder


def _lay_together(url: str) -> None:
    """What is of one group, as a service writes it. PostgreSQL inserts all copies of a row one after the other, so
    that each completion of a group would be read from a page of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("groups", "rollouts", "judgements"):
            connection.execute(f"CLUSTER {table} USING pk_{table}".encode())
        connection.execute("VACUUM (ANALYZE)")


def _prepare(*urls: str) -> None:
    """Beforehand, so that nothing is measured with it: the schema, and the index of texts. The service would take hours
    for the latter, with its pauses."""
    for url in urls:
        asyncio.run(_index_texts(Store.open(url, MIGRATIONS)))


async def _index_texts(store: Store) -> None:
    newest = (await store.texts.take_snapshot()).newest
    while not (await store.texts.index_texts(newest, INDEXED_AT_ONCE)).is_last:
        pass
    await store.close()


def _create_database(url: str, name: str, template: str = "template1") -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}".encode())
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())


def measure(chosen: argparse.Namespace) -> Iterator[BenchmarkFigure]:
    kept: tuple[tuple[str, Callable[[int], AbstractContextManager[KeptStores]], int], ...] = (
        ("SQLite", keep_sqlite, chosen.rollouts),
        ("PostgreSQL", keep_postgres, chosen.postgres_rollouts),
    )
    for name, keep, rollouts in kept:
        if rollouts:
            with keep(rollouts) as stores:
                yield from _compare(name, stores, chosen)


def _compare(name: str, stores: KeptStores, chosen: argparse.Namespace) -> Iterator[BenchmarkFigure]:
    what = f"{name}, {stores.many_rollouts:,} rollouts beside {FEW * SEEDED:,}"
    tell_progress(what)
    if chosen.starts:
        starts = _measure_starts(stores, chosen.starts)
        yield BenchmarkFigure.of(f"{what}: start to `/readyz`", [many for _, many in starts], "s")
        ratios = [many / few for few, many in starts]
        yield BenchmarkFigure.of("the same, times that of the small store", ratios, at_most=MOST_OF_START)
    with _served(stores, stores.few) as one, _served(stores, stores.many) as other:
        few, many = Side.open(one, stores.few), Side.open(other, stores.many)
        few.tell_world()
        many.tell_world()
        times = _measure_routes(few, many, chosen.rounds, chosen.only)
        memory = few.measure_memory(), many.measure_memory()
    for kind, megabytes in memory[1].items():
        yield BenchmarkFigure.of(f"{what}: memory, {kind}", [megabytes], "MB")
        yield BenchmarkFigure.of("the same, times that of the small store", [megabytes / memory[0][kind]])
    late = {route: (_find_p95(few), _find_p95(many)) for route, (few, many) in times.items()}
    if pages := [many for route, (_, many) in late.items() if "/view/" in route or route == "GET /"]:
        yield BenchmarkFigure.of(f"{what}: the slowest page, p95", [max(pages)], "ms", at_most=MOST_OF_A_PAGE)
    for route, (small, large) in late.items():
        column = f"{name}: p95, times that of the small store"
        yield BenchmarkFigure.of(f"`{route}`", [large / small], at_most=MOST, column=column)
        yield BenchmarkFigure.of(f"`{route}`", [large], "ms", column=f"{name}: p95")


def _measure_routes(few: Side, many: Side, rounds: int, only: Sequence[str]) -> Times:
    times: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    calls = list(list_calls(only))
    for number in count_rounds("every route of both stores", rounds + WARMING):
        for place, call in enumerate(calls):
            for side in (few, many) if (number + place) % 2 else (many, few):
                for name, taken in call(side):
                    if number >= WARMING:
                        times[name][side is many].append(taken)
    return times


def _find_p95(seconds: Sequence[float]) -> float:
    """In milliseconds."""
    return sorted(seconds)[int(0.95 * (len(seconds) - 1))] * 1e3


def _measure_starts(stores: KeptStores, starts: int) -> list[tuple[float, float]]:
    """Seconds to /readyz of both, in turns; the first turn is not counted."""
    found = []
    for _ in count_rounds("starts", starts + 1):
        with _served(stores, stores.few) as few, _served(stores, stores.many) as many:
            found.append((few.seconds_to_ready, many.seconds_to_ready))
    return found[1:]


def _served(stores: KeptStores, url: str) -> AbstractContextManager[Served]:
    settings = {"ATROPOS_ENVS_DATABASE_URL": url, **POLICY}
    return serving(stores.folder, settings=settings, python=sys.executable, migrated=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=10_000_000, help="on SQLite; 0 leaves it out")
    parser.add_argument("--postgres-rollouts", type=int, default=2_000_000, help="on PostgreSQL; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--starts", type=int, default=3, help="of each gateway; 0 leaves them out")
    parser.add_argument("--only", nargs="+", default=(), help="routes that have one of these texts in their names")
    parser.add_argument("--record", action="store_true", help="keep what was measured")
    chosen = parser.parse_args()
    given = " ".join(word for word in sys.argv[1:] if word != "--record")
    kept = ["--record"] if chosen.record and not chosen.only else []
    run("growth", lambda: list(measure(chosen)), kept, given)


if __name__ == "__main__":
    main()
