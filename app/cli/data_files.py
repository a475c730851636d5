"""Atomic writing of training data files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.consoles import stop
from app.domain.exports import ExportFormat


def infer_format(file: Path) -> ExportFormat:
    if file.suffix not in (".jsonl", ".parquet"):
        stop(f"{file}: its name must end in .jsonl or .parquet", 1)
    return "jsonl" if file.suffix == ".jsonl" else "parquet"


@contextmanager
def use_partial_file(file: Path) -> Iterator[Path]:
    """A temporary path next to the file, removed at exit unless it was renamed."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
