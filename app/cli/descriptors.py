"""The limit of open files and sockets."""

import contextlib
import resource
from typing import Final

ENOUGH: Final = 65_536


def allow_many_sockets() -> None:
    """Raises the soft limit as far as the system allows: the usual 1024 is too low for some trainers."""
    with contextlib.suppress(OSError, ValueError):
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = ENOUGH if most == resource.RLIM_INFINITY else min(ENOUGH, most)
        if allowed != resource.RLIM_INFINITY and allowed < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
