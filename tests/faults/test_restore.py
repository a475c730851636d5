"""A store is backed up while it is served, as `docs/operating.md` says, and restored after more was stored."""

import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support.careful_trainer import CarefulTrainer
from tests.support.databases import Postgres
from tests.support.serving import Served, serving

pytestmark = pytest.mark.slow

RUN = "restored"
SHAPES = ("rollouts", "sft", "dpo", "kto", "labels", "judgements")


def read_exports(url: str) -> dict[str, bytes]:
    asked = {"run": RUN, "private": "true", "offline_judge": "true"}
    with httpx.Client(base_url=url, timeout=60) as client:
        return {
            shape: client.get("/export", params={**asked, "shape": shape}).raise_for_status().content
            for shape in SHAPES
        }


def read_statistics(url: str) -> Mapping[str, object]:
    found: Mapping[str, object] = httpx.get(f"{url}/stats", params={"run": RUN}, timeout=60).raise_for_status().json()
    return found


def label_one(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as client:
        item = client.post("/labels/next", json={"labeller": "ada", "run": RUN}).raise_for_status().json()["item"]
        better, worse, *_ = (reply["rollout_id"] for reply in item["replies"])
        label = {"labeller": "ada", "lease_id": item["lease_id"], "pair": {"better": better, "worse": worse}}
        client.post(f"/groups/{item['group_id']}/labels", json=label).raise_for_status()


def work(served: Served) -> CarefulTrainer:
    trainer = CarefulTrainer(served.url, RUN)
    trainer.score(6)
    trainer.score(3, "rlaif")
    label_one(served.url)
    return trainer


def copy_file(source: Path, target: Path) -> None:
    """What `sqlite3 file.db ".backup copy.db"` does."""
    with closing(sqlite3.connect(source)) as connection, closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def test_a_restored_file_exports_the_same_bytes(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with serving(tmp_path) as served:
        trainer = work(served)
        copy_file(served.database, copy)
        before = read_exports(served.url), read_statistics(served.url)
        lost = CarefulTrainer(served.url, RUN, text="later")
        lost.score(3)
    for name in ("gateway.db-wal", "gateway.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copyfile(copy, served.database)
    with serving(tmp_path) as restored:
        after = read_exports(restored.url), read_statistics(restored.url)
        kept = trainer.read_scored(restored.url)
        trainer.url = restored.url
        trainer.score(2)
        whole = trainer.read_scored(restored.url)
    assert after == before
    rows = {shape: len(before[0][shape].splitlines()) for shape in ("rollouts", "kto", "labels")}
    assert (rows["rollouts"], rows["kto"] > 0, rows["labels"]) == (36, True, 1)
    assert (kept.items() <= trainer.acknowledged.items(), len(kept), whole) == (True, 9, trainer.acknowledged)


def run_program(postgres: Postgres, name: str, *arguments: str) -> None:
    with psycopg.connect(postgres.url) as connection:
        (folder,) = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchone() or ("",)
    subprocess.run([Path(folder) / name, *arguments], check=True, capture_output=True)


def restore(postgres: Postgres, url: str, dump: Path) -> None:
    """Over whoever still uses the database."""
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {name}".encode())
    run_program(postgres, "pg_restore", "--dbname", url, "--exit-on-error", str(dump))


def test_a_restored_database_exports_the_same_bytes_also_from_a_replica_that_lived_on(
    tmp_path: Path, postgres: Postgres
) -> None:
    url, dump = postgres.empty(), tmp_path / "dump"
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
    settings = {"ATROPOS_ENVS_DATABASE_URL": url}
    with serving(folders[0], settings=settings) as old:
        trainer = work(old)
        run_program(postgres, "pg_dump", "--format=custom", "--file", str(dump), url)
        before = read_exports(old.url), read_statistics(old.url)
        lost = CarefulTrainer(old.url, RUN, text="later")
        lost.score(3)
        restore(postgres, url, dump)
        with serving(folders[1], settings=settings) as new:
            after = [(read_exports(one.url), read_statistics(one.url)) for one in (new, old)]
            again = CarefulTrainer(old.url, RUN, text="again")
            again.score(3)
            stored = again.read_scored(new.url), trainer.read_scored(new.url)
    assert after == [before, before]
    assert (stored, len(again.acknowledged)) == ((again.acknowledged, trainer.acknowledged), 3)
