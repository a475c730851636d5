"""What a process was started with, of which only its own socket is kept. Standard library only."""

import os
import resource
from typing import Final

MOST: Final = 1 << 20
"""Higher numbers no process has by default."""


def own_socket() -> int:
    """A descriptor of the socket that stands at 0, moved away from where functions and programs read from and print
    to. All others are closed, at any number: what the service's parents left open is inherited under some event
    loops."""
    os.closerange(3, max(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    own = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return own
