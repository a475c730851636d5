"""Gateways that tests share, each in a process of its own."""

import contextlib
from pathlib import Path

from tests.support.data_sets import numbered_rows
from tests.support.serving import Served, serving


class Gateways:
    """One process for each set of settings. Who shares it kills nothing, and has runs and worlds of its own."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._served: dict[tuple[tuple[str, str], ...], Served] = {}
        self._data: dict[int, Path] = {}

    def of(self, **settings: str) -> Served:
        wanted = tuple(sorted(settings.items()))
        if wanted not in self._served:
            folder = self._folder / f"gateway-{len(self._served)}"
            folder.mkdir()
            self._served[wanted] = self._stack.enter_context(serving(folder, settings=settings))
        return self._served[wanted]

    def of_rows(self, count: int) -> Served:
        """Its `gsm8k` are numbered rows, so many of them in the test split."""
        if count not in self._data:
            self._data[count] = numbered_rows(self._folder / f"rows-{count}", count)
        return self.of(ATROPOS_ENVS_DATASETS__GSM8K=str(self._data[count]))
