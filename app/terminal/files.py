"""Files of commands: written whole or not at all, held by one process, and refused where they say something else."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.domain.errors import UserError
from app.domain.values import Frozen

if sys.platform != "win32":
    import fcntl


def write_file(path: Path, parts: Iterable[str]) -> None:
    """A killed command leaves the former file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(parts)
    fresh.replace(path)


@contextmanager
def hold_file(path: Path) -> Iterator[None]:
    """Until the end of the block, or of the process. UserError when another process holds it. The lock is a file beside
    it: the file itself is replaced, and a lock would go with the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("ab") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UserError(f"{path}: in use by another process") from error
        yield


def require_same_options(path: Path, before: Frozen, now: Frozen) -> None:
    """UserError that names what differs."""
    if before == now:
        return
    then, today = before.model_dump(mode="json"), now.model_dump(mode="json")
    differing = ", ".join(f"{name} was {then[name]}" for name in then if then[name] != today[name])
    raise UserError(f"{path} was started with other options ({differing}): repeat them, or use another --out")
