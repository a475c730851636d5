"""Which files a process may still read and write, for good, without any privilege. Standard library only.

Landlock rules say what is allowed below a directory; everything else that the kernel's version of it knows is refused.
It also keeps a process from tracing others, and in newer versions from TCP, abstract sockets and signals to others.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Final

from app.sandbox.syscalls import called, prctl

READ_FILE, READ_DIR = 1 << 2, 1 << 3
READ: Final = READ_FILE | READ_DIR
WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, REFER, TRUNCATE = (1 << bit for bit in (1, 4, 5, 7, 8, 13, 14))
WRITE: Final = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE

VERSION_ONLY: Final = 1
BENEATH: Final = 1
RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights on files a version knows; the last holds for later ones."""
TCP: Final = 0b11
"""To bind and to connect, from version 4 on."""
SCOPES: Final = 0b11
"""Abstract sockets and signals of those outside, from version 6 on."""
PR_SET_NO_NEW_PRIVS: Final = 38


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """OSError where the kernel has none, or it is turned off."""
    return called("landlock_create_ruleset", None, 0, VERSION_ONLY)


def ruleset(readable: Iterable[str], writable: Iterable[str] = ()) -> int:
    """A descriptor for `restrict`. Places that are not there are left out."""
    known = version()
    rights = (1 << RIGHTS.get(known, max(RIGHTS.values()))) - 1
    attributes = _Attributes(rights, TCP if known >= 4 else 0, SCOPES if known >= 6 else 0)
    size = 8 if known < 4 else 16 if known < 6 else 24
    made = called("landlock_create_ruleset", attributes, size, 0)
    for places, access in ((readable, READ), (writable, WRITE)):
        for place in places:
            _allow(made, place, access & rights)
    return made


def restrict(made: int) -> None:
    """This thread and all that it starts, until it ends."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    called("landlock_restrict_self", made, 0)


def _allow(made: int, place: str, access: int) -> None:
    try:
        parent = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        of_a_file = READ_FILE | WRITE_FILE | TRUNCATE
        allowed = access if os.path.isdir(place) else access & of_a_file  # noqa: PTH112
        called("landlock_add_rule", made, BENEATH, _Beneath(allowed, parent), 0)
    finally:
        os.close(parent)
