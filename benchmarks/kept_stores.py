"""Large stores that are made once and kept in `.cache/growth`, each beside the small one that it grew from.

They are made anew when how they are made has changed, and migrated when the schema has."""

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

import benchmarks.grown_stores
import benchmarks.seeded_stores
from app.main.store import Store
from app.store.migration import migrate
from benchmarks.grown_stores import grow
from benchmarks.seeded_stores import GROUP_SIZE, GROUPS_A_STEP, GROUPS_BESIDE, STEPS, seed
from tests.support.databases import MIGRATIONS, read_migrated_store, running_server

KEPT: Final = Path(__file__).parents[1] / ".cache" / "growth"
INDEXED_AT_ONCE: Final = 500
REPORT_SECONDS: Final = 30
OF_GROUPS: Final = ("groups", "rollouts", "scores", "judgements")
FEW: Final = 16
"""Copies in the small store: so many that pages and what is drawn from them are full."""
SEEDED: Final = GROUP_SIZE * (STEPS * sum(groups for _, _, groups in GROUPS_A_STEP) + 3 * GROUPS_BESIDE)


@dataclass(frozen=True)
class KeptStores:
    few: str
    many: str
    few_rollouts: int
    many_rollouts: int
    size: str
    folder: Path
    """For what is written beside the stores."""


def name_version() -> str:
    """Of how stores are made."""
    made_by = (benchmarks.grown_stores, benchmarks.seeded_stores)
    sources = b"".join(Path(str(module.__file__)).read_bytes() for module in made_by)
    return hashlib.sha256(sources).hexdigest()[:8]


def count_copies(rollouts: int) -> int:
    return max(2, round(rollouts / SEEDED))


@contextmanager
def keep_sqlite(rollouts: int) -> Iterator[KeptStores]:
    copies = count_copies(rollouts)
    folder = _find_folder("sqlite", copies)
    if not folder.exists():
        with _making(folder) as made:
            _make_sqlite(made, copies)
    with tempfile.TemporaryDirectory() as name:
        few = Path(name) / "few.db"
        shutil.copy(folder / "few.db", few)
        many = folder / "many.db"
        _prepare(f"sqlite:///{few}", f"sqlite:///{many}")
        size = f"{few.stat().st_size / 2**20:,.0f} and {many.stat().st_size / 2**20:,.0f} MB"
        yield KeptStores(f"sqlite:///{few}", f"sqlite:///{many}", FEW * SEEDED, SEEDED * copies, size, Path(name))


@contextmanager
def keep_postgres(rollouts: int) -> Iterator[KeptStores]:
    copies = count_copies(rollouts)
    folder = _find_folder("postgresql", copies)
    if not folder.exists():
        with _making(folder) as made, running_server(made / "data") as server:
            _make_postgres(made, server.get_uri(), copies)
    with running_server(folder / "data") as server, tempfile.TemporaryDirectory() as name:
        url = server.get_uri()
        _create_database(url, "few", "seeded")
        few, many = (url.replace("/postgres?", f"/{one}?") for one in ("few", "many"))
        _prepare(few, many)
        with psycopg.connect(url) as connection:
            sizes = [
                connection.execute("SELECT pg_database_size(%s)", (one,)).fetchone() or (0,) for one in ("few", "many")
            ]
        size = " and ".join(f"{one[0] / 2**20:,.0f} MB" for one in sizes)
        yield KeptStores(few, many, FEW * SEEDED, SEEDED * copies, size, Path(name))


def _find_folder(kind: str, copies: int) -> Path:
    """Folders of other versions go."""
    version = name_version()
    KEPT.mkdir(parents=True, exist_ok=True)
    for found in KEPT.iterdir():
        if not found.name.startswith(f"{kind}-{version}-") and found.name.startswith(f"{kind}-"):
            shutil.rmtree(found)
    return KEPT / f"{kind}-{version}-{copies}"


@contextmanager
def _making(folder: Path) -> Iterator[Path]:
    """What was not made to its end is made anew."""
    part = folder.with_name(f"{folder.name}-part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    began = time.monotonic()
    yield part
    part.rename(folder)
    print(f"made {folder.name} in {time.monotonic() - began:.0f} s", flush=True)


def _make_sqlite(folder: Path, copies: int) -> None:
    few, many = folder / "few.db", folder / "many.db"
    few.write_bytes(read_migrated_store())
    seed(folder, f"sqlite:///{few}")
    shutil.copy(few, many)
    grow(f"sqlite:///{few}", FEW, _report)
    grow(f"sqlite:///{many}", copies, _report)


def _make_postgres(folder: Path, url: str, copies: int) -> None:
    _create_database(url, "seeded")
    seeded, many = (url.replace("/postgres?", f"/{one}?") for one in ("seeded", "many"))
    migrate(seeded, MIGRATIONS)
    seed(folder, seeded)
    with psycopg.connect(seeded, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
    _create_database(url, "many", "seeded")
    grow(many, copies, _report)
    grow(seeded, FEW, _report)
    for grown in (seeded, many):
        _lay_together(grown)


def _lay_together(url: str) -> None:
    """What is of one group, as a service writes it. PostgreSQL inserts all copies of a row one after the other, so
    that each completion of a group would be read from a page of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table in OF_GROUPS:
            connection.execute(f"CLUSTER {table} USING pk_{table}".encode())
        connection.execute("VACUUM (ANALYZE)")


def _prepare(*urls: str) -> None:
    """Beforehand, so that nothing is measured with it: the schema, and the index of texts. The service would take hours
    for the latter, with its pauses."""
    for url in urls:
        asyncio.run(_index_texts(Store.open(url, MIGRATIONS)))


async def _index_texts(store: Store) -> None:
    newest = (await store.texts.take_snapshot()).newest
    indexed, reported, is_last = 0, time.monotonic(), False
    while not is_last:
        batch = await store.texts.index_texts(newest, INDEXED_AT_ONCE)
        indexed, is_last = indexed + batch.indexed, batch.is_last
        if time.monotonic() > reported + REPORT_SECONDS:
            _report(f"texts of {indexed:,} groups indexed, of {newest:,} at most")
            reported = time.monotonic()
    await store.close()


def _create_database(url: str, name: str, template: str = "template1") -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}".encode())
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())


def _report(line: str) -> None:
    print(f"  {line} ({time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f})", flush=True)
