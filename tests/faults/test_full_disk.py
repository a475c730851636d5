"""A disk that is really full: the service says that it is not ready, and nothing that it acknowledged is lost."""

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.careful_trainer import CarefulTrainer
from tests.support.serving import ROOT, Served, serving

pytestmark = pytest.mark.slow

DISK_MEGABYTES = 24
NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount")
FULL = (200, 503, "the disk of the database cannot be written to: no space left")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Where the service, and nobody else, sees a small disk."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        tried = subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "none", place], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `unshare` (util-linux), which makes a small disk for the service alone")
    if tried.returncode != 0:
        pytest.skip(f"a user may mount no disk of his own here: {tried.stderr.decode().strip()}")
    return place


@contextlib.contextmanager
def serving_from(disk: Path) -> Iterator[Served]:
    """The service, whose database lies on a disk that only it sees."""
    folder = disk.parent
    python = folder / "python"
    mount = f"mount -t tmpfs -o size={DISK_MEGABYTES}m none {shlex.quote(str(disk))}"
    inside = f'{mount} && exec {shlex.quote(sys.executable)} "$@"'
    python.write_text(f'#!/bin/sh\nexec {" ".join(NAMESPACES)} sh -c {shlex.quote(inside)} sh "$@"\n')
    python.chmod(0o700)
    settings = {"ATROPOS_ENVS_DATABASE_URL": f"sqlite:///{disk / 'gateway.db'}", "PYTHONPATH": str(ROOT)}
    with serving(folder, settings=settings, python=python) as served:
        yield served


def fill(disk: Path) -> Path:
    """Takes what is left, to the last byte."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


def health(url: str) -> tuple[int, int, str]:
    ready = httpx.get(f"{url}/readyz", timeout=120)
    return httpx.get(f"{url}/livez").status_code, ready.status_code, ready.json().get("detail", "")


def test_a_full_disk_is_told_and_loses_nothing_that_was_acknowledged(disk: Path) -> None:
    with serving_from(disk) as served:
        trainer = CarefulTrainer(served.url, "full", text="so " * 2000)
        trainer.score(5)
        filler = fill(Path(f"/proc/{served.process.pid}/root{disk}"))
        full = [health(served.url)]
        trainer.score(20)
        full.append(health(served.url))
        filler.unlink()
        freed = health(served.url)
        trainer.score(5)
        stored = trainer.read_scored(served.url)
    assert (full, trainer.refused, freed) == ([FULL, FULL], {503}, (200, 200, ""))
    assert (stored, len(stored) >= 10) == (trainer.acknowledged, True)
