"""`python -m MODULE` in processes that are forked from one which has imported the service: most of a start is imports.

What is forked is like any program: it has its own id, folder, environment, arguments and log, can be killed, and its
exit code is known. The process that it comes from ends with the one that asked for it. What the interpreter itself
reads from the environment, and what libraries read when they are imported, is what the tests were started with.
"""

import atexit
import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Protocol

from app.settings import PREFIX

ROOT = Path(__file__).resolve().parents[2]
PATH = tuple(sys.path[1:])
"""Where the process that programs are forked from finds modules, beside its folder."""
FILTERS = tuple(warnings.filters)
"""Before packages are loaded that add their own, as numpy does."""
CONTEXT = multiprocessing.get_context("forkserver")


class Program(Protocol):
    """Running or ended. `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ForkedProgram:
    def __init__(
        self, module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        """Standard output and standard error are appended to the log."""
        given = (module, [*arguments], folder, {**environment}, log)
        self._process = CONTEXT.Process(target=_run_module, args=given, daemon=True)
        CONTEXT.set_forkserver_preload([__name__, "tests.support.preloaded"])
        with _clean_environment():
            forkserver.ensure_running()
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, that of a signal negative; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process.name), timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def plain_environment() -> dict[str, str]:
    """This process's, without settings of the service; it finds this repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, "PYTHONPATH": str(ROOT)}


@contextlib.contextmanager
def _clean_environment() -> Iterator[None]:
    """For a process that many tests share."""
    before = dict(os.environ)
    _set_environment(plain_environment())
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _run_module(module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> None:
    """As an interpreter does it that is started for the module."""
    _let_server_end()
    os.chdir(folder)
    _set_environment(environment)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.path[:] = [str(folder), *PATH]
    warnings.filters[:] = FILTERS  # type: ignore[index]  # it is a list
    sys.argv[:] = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()


def _let_server_end() -> None:
    """A fork keeps the process that it comes from, in case it wants forks of its own."""
    server: Any = forkserver._forkserver
    os.close(server._forkserver_alive_fd)
    server._forkserver_alive_fd = None
