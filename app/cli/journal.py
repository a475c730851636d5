"""A write-ahead journal: each event is on disk before it takes effect, so that a killed command can resume.

A journal is a file of JSON Lines, an event a line, and a ledger that is folded from the events. The ledger can also
name the shortest list of events with its state, by which the file is rewritten at every start and when it has grown
long. The setup is in it, so that a start with other options is refused where that would mix results. One process at a
time holds a journal, by a lock on a file beside it: the journal itself is replaced, and a lock would go with the old
file."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from app.domain.errors import UserError
from app.domain.values import Frozen
from app.terminal.files import hold_file, require_same_options

SHORTEN_AFTER: Final = 64 * 1024 * 1024
"""Bytes written since the last compaction."""

_EventT = TypeVar("_EventT", bound=Frozen)


class Ledger(Protocol[_EventT]):
    """State folded from events."""

    @property
    def setup(self) -> Frozen | None:
        """Options that must not change between starts; None before the first event."""

    @property
    def holds_results(self) -> bool:
        """Whether something is in it that a start with other options would lose."""

    def apply(self, happened: _EventT) -> None:
        """KeyError for an event that is invalid in this state."""

    def iter_compacted(self) -> Iterator[_EventT]:
        """The shortest list of events with the same state."""


_LedgerT = TypeVar("_LedgerT", bound=Ledger[Any])


class Journal(Generic[_EventT, _LedgerT]):
    """A JSON Lines file, locked for one process."""

    def __init__(
        self, path: Path, file: BinaryIO, adapter: TypeAdapter[_EventT], ledger: _LedgerT, shorten_after: int
    ) -> None:
        self.path = path
        self.ledger = ledger
        self._adapter = adapter
        self._file = file
        self._written = 0
        self._shorten_after = shorten_after
        self._turn = asyncio.Lock()

    async def add(self, *happened: _EventT) -> None:
        """Returns when the events are on disk."""
        # The lock keeps the order of the file that of the ledger.
        async with self._turn:
            lines = b"".join(_encode_line(self._adapter, one) for one in happened)
            await asyncio.to_thread(_append, self._file, lines)
            for one in happened:
                self.ledger.apply(one)
            self._written += len(lines)
            if self._written > self._shorten_after:
                self._shorten()

    def _shorten(self) -> None:
        """Replaces the file by a compacted one."""
        self._file.close()
        _rewrite(self.path, self._adapter, self.ledger)
        self._file = self.path.open("ab")
        self._written = 0

    def close(self) -> None:
        self._file.close()


@contextmanager
def open_journal(
    path: Path,
    command: str,
    adapter: TypeAdapter[_EventT],
    new_ledger: Callable[[], _LedgerT],
    setup: Frozen,
    began: _EventT,
    shorten_after: int = SHORTEN_AFTER,
) -> Iterator[Journal[_EventT, _LedgerT]]:
    """Resumes an existing journal, or starts a new one with `began`. UserError when the file has results of another
    setup, is not a journal, or is in use."""
    with hold_file(path):
        ledger = read_ledger(path, command, adapter, new_ledger, setup)
        if ledger.setup is None and not ledger.holds_results:
            ledger.apply(began)
        _rewrite(path, adapter, ledger)
        journal = Journal(path, path.open("ab"), adapter, ledger, shorten_after)
        try:
            yield journal
        finally:
            journal.close()


def read_ledger(
    path: Path, command: str, adapter: TypeAdapter[_EventT], new_ledger: Callable[[], _LedgerT], setup: Frozen
) -> _LedgerT:
    """What a start with this setup goes on from: an empty ledger where there are no results. UserError when the file
    has results of another setup, or is not a journal."""
    ledger = _read(path, command, adapter, new_ledger())
    if ledger.setup == setup:
        return ledger
    if not ledger.holds_results:
        return new_ledger()
    require_same_options(path, ledger.setup or setup, setup)
    return ledger


def _read(path: Path, command: str, adapter: TypeAdapter[_EventT], ledger: _LedgerT) -> _LedgerT:
    """Returns the ledger. Ignores an incomplete last line: the process died while writing it."""
    if not path.exists():
        return ledger
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                ledger.apply(adapter.validate_json(line))
            except (ValidationError, KeyError) as error:
                raise UserError(f"{path}:{number}: not a journal of `{command}`") from error
    return ledger


def _rewrite(path: Path, adapter: TypeAdapter[_EventT], ledger: Ledger[_EventT]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        for one in ledger.iter_compacted():
            file.write(_encode_line(adapter, one))
        _sync(file)
    fresh.replace(path)


def _encode_line(adapter: TypeAdapter[_EventT], happened: _EventT) -> bytes:
    return adapter.dump_json(happened) + b"\n"


def _append(file: BinaryIO, lines: bytes) -> None:
    file.write(lines)
    _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
