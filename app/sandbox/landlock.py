"""Landlock: restricts for good the files that a process may read and write, without privileges.

Standard library only.

Rules allow access below a directory; all other rights that the kernel's version knows are refused. Landlock also
prevents tracing of other processes and, in newer versions, TCP, abstract sockets and signals to others."""

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Final

from app.sandbox.syscalls import call_kernel, prctl, prepare_call

READ_FILE, READ_DIR = 1 << 2, 1 << 3
READ: Final = READ_FILE | READ_DIR
WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, REFER, TRUNCATE = (1 << bit for bit in (1, 4, 5, 7, 8, 13, 14))
WRITE: Final = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE

VERSION_ONLY: Final = 1
BENEATH: Final = 1
RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file rights by version; later versions have at least the last."""
TCP: Final = 0b11
"""Bind and connect, since version 4."""
SCOPES: Final = 0b11
"""Abstract sockets and signals outside the domain, since version 6."""
PR_SET_NO_NEW_PRIVS: Final = 38


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def read_version() -> int:
    """The kernel's Landlock version. Raises OSError if it has none or it is disabled."""
    return call_kernel("landlock_create_ruleset", None, 0, VERSION_ONLY)


def create_ruleset(readable: Iterable[str], writable: Iterable[str] = ()) -> int:
    """Creates a ruleset and returns its descriptor for `restrict`. Missing paths are skipped."""
    known = read_version()
    rights = (1 << RIGHTS.get(known, max(RIGHTS.values()))) - 1
    attributes = _Attributes(rights, TCP if known >= 4 else 0, SCOPES if known >= 6 else 0)
    size = 8 if known < 4 else 16 if known < 6 else 24
    made = call_kernel("landlock_create_ruleset", attributes, size, 0)
    for places, access in ((readable, READ), (writable, WRITE)):
        for place in places:
            _allow(made, place, access & rights)
    return made


def restrict(made: int) -> None:
    """Applies the ruleset to this thread and everything that it starts."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prepare_restriction(made)()


def prepare_restriction(made: int) -> Callable[[], None]:
    """`restrict`, for a process that may gain no privileges any more."""
    return prepare_call("landlock_restrict_self", made, 0)


def _allow(made: int, place: str, access: int) -> None:
    try:
        parent = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        of_a_file = READ_FILE | WRITE_FILE | TRUNCATE
        allowed = access if os.path.isdir(place) else access & of_a_file  # noqa: PTH112
        call_kernel("landlock_add_rule", made, BENEATH, _Beneath(allowed, parent), 0)
    finally:
        os.close(parent)
