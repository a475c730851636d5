"""Where commands print."""

import sys

from rich.console import Console

PIPED_COLUMNS = 10_000
"""Wider than any table: what goes to a file or a program is not cut to the width of a terminal that is not there."""


def output_console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS)
