"""Attempts to get out of a jail, as programs; and what there is outside, to be reached."""

import os
import socket
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from app.domain.values import Frozen
from app.sandbox.confinement import CHECKED, FOREIGN, look_up_numbers
from tests.architecture.test_house import ROOT
from tests.support.jailed import Jails
from tests.support.tables import read_table


class _Tables(Frozen):
    deeds: dict[str, dict[str, str]]
    program: str


_TABLES: Final = read_table(__file__, "break_outs.yaml", _Tables)
PROGRAM: Final = _TABLES.program
FILES: Final = _TABLES.deeds["files"]
ATTEMPTS: Final = {name: deed for deeds in _TABLES.deeds.values() for name, deed in deeds.items()}

NUMBERS: Final = look_up_numbers(FOREIGN + CHECKED)

STOPPED_BY_LESS: Final = {
    *("a new root", "bpf", "descriptors", "higher limits", "io_uring", "kernel keys", "link out", "namespaces"),
    *("netlink", "new file", "priority", "service's memory", "service's variables", "through its root", "trace"),
    "variables",
}
"""Limits or missing capabilities refuse these, or they are nothing that walls stop, so they fail without any too."""
STOPPED_FOR_USERS: Final = {
    *("executor", "fork", "fork, raw", "multiprocessing", "own process", "spawn", "subprocess", "system", "thread"),
}
"""The same for programs that root does not run."""

Given = dict[str, int | str]


@contextmanager
def within_reach() -> Iterator[Given]:
    """Files that anybody may read and change, and listening sockets."""
    with (
        tempfile.TemporaryDirectory(prefix="reach-") as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as hidden,
    ):
        Path(folder).chmod(0o777)
        for name in ("file", "empty", "moved", "removed"):
            (Path(folder) / name).write_text("kept", encoding="ascii")
            (Path(folder) / name).chmod(0o666)
        unix.bind(f"{folder}/socket")
        hidden.bind(f"\0{folder}")
        for listener in (unix, hidden):
            listener.listen()
        yield {
            "tcp": tcp.getsockname()[1],
            "unix": f"{folder}/socket",
            "abstract": f"\0{folder}",
            "folder": folder,
            "source": str(ROOT / "app" / "main" / "application.py"),
            "packages": str(Path(pytest.__file__).parents[1]),
            "service": os.getpid(),
            **NUMBERS,
        }


def attained(jailed: Jails, given: Given, names: Collection[str] = tuple(ATTEMPTS)) -> set[str]:
    """Which attempts were not refused. Each is a program of its own, since one may spoil the next."""
    return {name for name in names if jailed.said(PROGRAM, ATTEMPTS[name], {**given}) != "refused"}
