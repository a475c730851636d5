"""Programs of others that run beside the service: in an interpreter of their own, and in a jail."""

from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

MOST_LINE: Final = 64 * 1024 * 1024
"""Bytes of a line that a child may print."""


@dataclass(frozen=True)
class ChildProgram:
    interpreter: Path
    """Of a virtual environment, or any Python. Its packages can be read in the jail."""
    file: Path
    """Standard library, and packages of that interpreter. It cannot import the service."""
    folders: tuple[Path, ...] = ()
    """What it may read besides; they come first where it looks for modules."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables with their values."""
    variables: tuple[str, ...] = ()
    """Names of the service's variables that it gets too. It sees no others."""
    inherits: bool = False
    """A trusted one sees all variables of this process instead, as a program of the same user would."""
    memory_mb: int = 8192
    """Address space of each of its processes."""
    file_mb: int = 1024
    """A file at most, and in a jail each of its three folders in memory: its own, `/tmp` and `/dev/shm`. They are gone
    when it ends."""
    trusted: bool = False
    """It runs without a jail, with the rights of the service: it has the network, and can read the service's files."""


class Child(Protocol):
    """A running one. Its streams end when it does."""

    @property
    def id(self) -> int:
        """Of the process; the whole group of it is killed."""

    @property
    def writer(self) -> StreamWriter: ...

    @property
    def reader(self) -> StreamReader:
        """Lines up to MOST_LINE."""

    @property
    def log(self) -> StreamReader:
        """What it printed to stderr."""

    async def wait(self) -> str:
        """How it ended, in words."""

    def kill(self) -> None:
        """With all that it started. Its streams end."""

    async def end(self) -> None:
        """Kills it, and waits until nothing of it is left."""


class Children(Protocol):
    async def start(self, program: ChildProgram) -> Child:
        """HostFailed where it cannot be started. Where the machine has no jail that holds, it ends at once and `wait`
        says so."""
