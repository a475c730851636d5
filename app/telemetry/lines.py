"""Log lines on their way out: written by a thread of their own, so that nobody who logs waits for who reads."""

import logging
import queue
import threading
import time
from collections.abc import MutableMapping
from typing import Any, TextIO

WAITING_LINES = 10_000
"""What a reader that stands still may leave unread in memory; later lines are dropped and counted."""
FLUSH_SECONDS = 2.0


class PatientHandler(logging.Handler):
    """Formats where it is called, writes elsewhere. Lines for which there is no room are dropped; before the next one
    that gets through stands their number."""

    def __init__(self, stream: TextIO, room: int = WAITING_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str] = queue.Queue(room)
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if self._dropped:
                self._lines.put_nowait(self.format(_told(self._dropped)))
                self._dropped = 0
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Waits until what was logged is written, for FLUSH_SECONDS at the most."""
        end = time.monotonic() + FLUSH_SECONDS
        with self._lines.all_tasks_done:
            while self._lines.unfinished_tasks and (left := end - time.monotonic()) > 0:
                self._lines.all_tasks_done.wait(left)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._stream.write(line + "\n")
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):  # nobody reads any more, or the stream is closed: there is no one to tell
                pass
            finally:
                self._lines.task_done()


def _told(dropped: int) -> logging.LogRecord:
    words = "log lines were dropped, since nobody read them: %d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, (dropped,), None)


def on_their_lines(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor for lines that people read: what stands in a value cannot end its line, move the cursor or
    colour the terminal. Tracebacks keep their lines, each marked as theirs."""
    for name, value in event.items():
        if name in {"exception", "stack"} and isinstance(value, str):
            event[name] = "\n".join("  | " + _visible(line) for line in value.split("\n"))
        elif isinstance(value, str):
            event[name] = _visible(value)
    return event


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
