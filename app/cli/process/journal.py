"""The ledger on disk: each event is there before anything follows from it, so that no kill loses anything."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from app.cli.process.ledger import HAPPENED, Began, Happened, Ledger
from app.cli.process.plan import Setup

if sys.platform != "win32":
    import fcntl

SHORTEN_AFTER: Final = 64 * 1024 * 1024
"""Bytes written since the file was last as short as it can be."""


class Journal:
    """One file of JSON lines. Only one process has it open."""

    def __init__(self, path: Path, file: BinaryIO, ledger: Ledger, shorten_after: int) -> None:
        self.path = path
        self.ledger = ledger
        self._file = file
        self._written = 0
        self._shorten_after = shorten_after
        self._turn = asyncio.Lock()

    async def add(self, *happened: Happened) -> None:
        """On disk when it returns."""
        async with self._turn:
            lines = b"".join(_line(one) for one in happened)
            await asyncio.to_thread(_append, self._file, lines)
            for one in happened:
                self.ledger.apply(one)
            self._written += len(lines)
            if self._written > self._shorten_after:
                self._shorten()

    def _shorten(self) -> None:
        """A new file in the place of the old one, under the same lock: the lock is on another file."""
        self._file.close()
        _rewrite(self.path, self.ledger)
        self._file = self.path.open("ab")
        self._written = 0

    def close(self) -> None:
        self._file.close()


@contextmanager
def opened_journal(path: Path, setup: Setup, shorten_after: int = SHORTEN_AFTER) -> Iterator[Journal]:
    """Of this setup, continued where there is one. ValueError when the file is of another setup, is no journal, or is
    in use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("ab") as lock:
        _lock(lock, path)
        ledger = _read(path)
        _require_same(path, ledger, setup)
        if ledger.setup is None:
            ledger.apply(Began(setup=setup))
        _rewrite(path, ledger)
        journal = Journal(path, path.open("ab"), ledger, shorten_after)
        try:
            yield journal
        finally:
            journal.close()


def _lock(lock: BinaryIO, path: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ValueError(f"{path}: another process is at work on it") from error


def _read(path: Path) -> Ledger:
    """A last line without its end was being written when the process died: nothing had followed from it."""
    ledger = Ledger()
    if not path.exists():
        return ledger
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                ledger.apply(HAPPENED.validate_json(line))
            except (ValidationError, KeyError) as error:
                raise ValueError(f"{path}:{number}: this is no journal of `process`") from error
    return ledger


def _require_same(path: Path, ledger: Ledger, setup: Setup) -> None:
    if ledger.setup is None or ledger.setup == setup:
        return
    before, now = ledger.setup.model_dump(mode="json"), setup.model_dump(mode="json")
    differing = ", ".join(f"{name} was {before[name]}" for name in before if before[name] != now[name])
    raise ValueError(f"{path} began otherwise ({differing}): give another --out, or the same options")


def _rewrite(path: Path, ledger: Ledger) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        for one in ledger.shortest():
            file.write(_line(one))
        _sync(file)
    fresh.replace(path)


def _line(happened: Happened) -> bytes:
    return HAPPENED.dump_json(happened) + b"\n"


def _append(file: BinaryIO, lines: bytes) -> None:
    file.write(lines)
    _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
