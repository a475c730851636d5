"""The journal of `process`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.journal import SHORTEN_AFTER, open_journal
from app.cli.journal import Journal as AnyJournal
from app.cli.process.ledger import PROCESS_EVENT, ProcessBegan, ProcessEvent, ProcessLedger
from app.cli.process.plan import ProcessSetup

Journal = AnyJournal[ProcessEvent, ProcessLedger]


@contextmanager
def open_process_journal(path: Path, setup: ProcessSetup, shorten_after: int = SHORTEN_AFTER) -> Iterator[Journal]:
    """Resumes or starts the journal of this setup. ValueError when the file has another setup, is not a journal, or is
    in use."""
    with open_journal(
        path, "process", PROCESS_EVENT, ProcessLedger, setup, ProcessBegan(setup=setup), shorten_after
    ) as journal:
        yield journal
