"""The journal of `process`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.journal import SHORTEN_AFTER, journaled
from app.cli.journal import Journal as AnyJournal
from app.cli.process.ledger import HAPPENED, Began, Happened, Ledger
from app.cli.process.plan import Setup

Journal = AnyJournal[Happened, Ledger]


@contextmanager
def opened_journal(path: Path, setup: Setup, shorten_after: int = SHORTEN_AFTER) -> Iterator[Journal]:
    """Resumes or starts the journal of this setup. ValueError when the file has another setup, is not a journal, or is
    in use."""
    with journaled(path, "process", HAPPENED, Ledger(), setup, Began(setup=setup), shorten_after) as journal:
        yield journal
