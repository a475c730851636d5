"""Runs a program as a script, with a text as its standard input, and gives what it writes to standard output.

Read as text. Both are files where there may be some, since programs also use their descriptors; else they are in
memory.
"""

import io
import os
import sys


def harness_run(source: str, text: str) -> str:
    sys.set_int_max_str_digits(0)  # the processor time of a program is limited anyway
    written = harness_open(text)
    names = {"__name__": "__main__", "exit": sys.exit, "quit": sys.exit}
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), names)  # noqa: S102  # in the jail
    except SystemExit as left:
        if left.code not in (None, 0):
            raise
    sys.stdout.flush()
    written.seek(0)
    return written.read().decode("utf-8", "replace")


def harness_open(text: str) -> io.BufferedIOBase:
    """Opens both, and gives what standard output is written to."""
    try:
        os.dup2(harness_make_file(text.encode()), 0)
        written = harness_make_file(b"")
        os.dup2(written, 1)
    except OSError:
        memory = io.BytesIO()
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(memory, encoding="utf-8")
        return memory
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    return open(written, "rb")  # noqa: PTH123


def harness_make_file(content: bytes) -> int:
    """A file without a name."""
    number = os.open("stream", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.unlink("stream")  # noqa: PTH108
    left = memoryview(content)
    while left:
        left = left[os.write(number, left) :]
    os.lseek(number, 0, os.SEEK_SET)
    return number
