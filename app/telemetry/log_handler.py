"""A non-blocking log handler: a thread writes the lines, so logging never waits for a slow reader."""

import logging
import queue
import time
from collections.abc import MutableMapping
from logging.handlers import QueueHandler, QueueListener
from typing import Any, TextIO

MOST_QUEUED_LINES = 10_000
"""Most unwritten lines kept in memory. Further lines are dropped and counted."""
FLUSH_SECONDS = 2.0


class NonBlockingHandler(QueueHandler):
    """Formats in the caller, writes in a listener's thread. Lines beyond `room` are dropped, and the next written line
    reports how many."""

    def __init__(self, stream: TextIO, room: int = MOST_QUEUED_LINES) -> None:
        self._lines: queue.Queue[logging.LogRecord] = queue.Queue(room)
        super().__init__(self._lines)
        self._dropped = 0
        self._listener = QueueListener(self._lines, _LineWriter(stream))
        self._listening = False

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                self._lines.put_nowait(self.prepare(_build_dropped_record(self._dropped)))
                self._dropped = 0
            self._lines.put_nowait(record)
        except queue.Full:
            self._dropped += 1
        if not self._listening:
            self._listening = True
            self._listener.start()

    def flush(self) -> None:
        """Waits at most FLUSH_SECONDS until all lines are written."""
        end = time.monotonic() + FLUSH_SECONDS
        with self._lines.all_tasks_done:
            while self._lines.unfinished_tasks and (left := end - time.monotonic()) > 0:
                self._lines.all_tasks_done.wait(left)


class _LineWriter(logging.StreamHandler[TextIO]):
    """Writes lines that are formatted already."""

    def handleError(self, record: logging.LogRecord) -> None:
        """The reader is gone or the stream is closed: there is nobody to tell."""


def _build_dropped_record(dropped: int) -> logging.LogRecord:
    words = "log lines were dropped because the output was blocked: %d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, (dropped,), None)


def escape_control_characters(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor for console output: escapes control characters, so that a value cannot break the line, move
    the cursor or colour the terminal. Tracebacks keep their lines, each with a prefix."""
    for name, value in event.items():
        if name in {"exception", "stack"} and isinstance(value, str):
            event[name] = "\n".join("  | " + _escape_unprintable(line) for line in value.split("\n"))
        elif isinstance(value, str):
            event[name] = _escape_unprintable(value)
    return event


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
