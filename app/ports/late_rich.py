"""Imports of packages that would load Rich and Pygments only because they are installed, which takes long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keep_rich_out() -> Iterator[None]:
    """structlog would colour tracebacks with them. Ours are plain texts by the time that a line is written."""
    loaded = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]  # as Python says that there is none
    try:
        yield
    finally:
        del sys.modules["rich"]
        if loaded is not None:
            sys.modules["rich"] = loaded
