"""How many files and sockets this process may hold open."""

import contextlib
import resource
from typing import Final

ENOUGH: Final = 65_536


def allow_many_sockets() -> None:
    """As many as the system lets it without asking anybody: many are started with 1024, and a trainer may well open
    more connections than that."""
    with contextlib.suppress(OSError, ValueError):
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = ENOUGH if most == resource.RLIM_INFINITY else min(ENOUGH, most)
        if allowed != resource.RLIM_INFINITY and allowed < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
