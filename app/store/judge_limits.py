"""Limits of judges' calls, which processes share, and whether a process that holds a part of them is gone."""

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Self

from sqlalchemy import Connection, select, update

from app.domain.judge_limits import LimitsExchange, LimitsGrant, SharedLimits, exchange_limits
from app.domain.values import digest
from app.store.database import Database
from app.store.statements import decode, encode
from app.store.tables import judge_limits


def exchange(connection: Connection, database: Database, asked: LimitsExchange) -> LimitsGrant:
    mine = judge_limits.c.judge == asked.judge
    locked = select(judge_limits.c.body).where(mine).with_for_update()
    body = connection.execute(locked).scalar()
    if body is None:
        fresh = {"judge": asked.judge, "body": encode(SharedLimits())}
        connection.execute(database.insert_new(judge_limits), fresh)
        body = connection.execute(locked).scalar_one()
    now = database.read_lease_clock(connection)
    named = replace(asked, holder=name_holder_here(asked.holder) or asked.holder)
    state, grant = exchange_limits(decode(SharedLimits, body), named, now, is_gone)
    connection.execute(update(judge_limits).where(mine).values(body=encode(state)))
    return grant


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, told from all that have had its number. `host` stands for one boot of one machine and the namespaces
    of its process numbers and times; `started` is in clock ticks since that boot."""

    host: str
    pid: int
    started: int

    def name_holder(self, holder: str) -> str:
        return f"{holder}@{self.host}/{self.pid}/{self.started}"

    @classmethod
    def parse_holder(cls, name: str) -> Self | None:
        """None for a holder whose process could not identify itself."""
        host, _, numbers = name.partition("@")[2].partition("/")
        pid, _, started = numbers.partition("/")
        return cls(host, int(pid), int(started)) if pid.isdecimal() and started.isdecimal() else None

    def is_gone(self) -> bool:
        """For a process of this host. False where that cannot be told."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            pass  # of another user, or no number of this system
        status = _read_status(self.pid)
        return status is not None and (status.ended or status.started != self.started)


def name_holder_here(holder: str) -> str | None:
    """The name of a holder in this process; None where the system does not say enough to tell it from others."""
    own = identify_process()
    return None if own is None else own.name_holder(holder)


def is_gone(holder: str) -> bool:
    """Whether the holder's process ran on this host and certainly does not any more."""
    own, its = identify_process(), ProcessIdentity.parse_holder(holder)
    return own is not None and its is not None and its.host == own.host and its.is_gone()


def identify_process() -> ProcessIdentity | None:
    """This process; None where the system does not say enough to tell it from others."""
    return _identify(os.getpid())


@cache
def _identify(pid: int) -> ProcessIdentity | None:
    """Cached by number, since a fork is another process."""
    status, host = _read_status(pid), _describe_host(pid)
    return None if status is None or host is None else ProcessIdentity(host, pid, status.started)


_PROC: Final = Path("/proc")


def _describe_host(pid: int) -> str | None:
    try:
        if str((_PROC / "self").readlink()) != str(pid):
            return None  # it shows the numbers of another namespace
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        spaces = [str((_PROC / "self/ns" / name).stat().st_ino) for name in ("pid", "time")]
    except OSError:
        return None
    return digest([boot, os.uname().nodename, *spaces])


_STATE, _THREADS, _STARTED = 0, 17, 19
"""Positions in `/proc/PID/stat` after the program's name."""


@dataclass(frozen=True)
class _ProcessStatus:
    started: int
    ended: bool


def _read_status(pid: int) -> _ProcessStatus | None:
    try:
        values = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    # A zombie whose first thread ended may have others that still run.
    ended = values[_STATE] in (b"Z", b"X") and int(values[_THREADS]) <= 1
    return _ProcessStatus(int(values[_STARTED]), ended)
