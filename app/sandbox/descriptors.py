"""Closes inherited descriptors, except a process's own socket. Standard library only."""

import os
import resource
from typing import Final

MAX_DESCRIPTOR: Final = 1 << 20
"""The default maximum number of a descriptor."""


def take_socket() -> int:
    """Moves the socket from descriptor 0 to a new one, so that functions and programs cannot read from it or print to
    it. Closes all other descriptors: under some event loops those of the service's parents are inherited."""
    os.closerange(3, max(MAX_DESCRIPTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    own = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return own
