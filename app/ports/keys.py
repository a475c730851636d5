"""Storage of keys and of what was done to them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.domain.access import AccessKey, AdminAction, SignIn, StoredKey

ChangeKey = Callable[[StoredKey | None], tuple[StoredKey, AdminAction] | None]
"""From a key as it is stored: what it becomes, with the entry of the audit; None leaves it. It may raise."""


@dataclass(frozen=True)
class KnownKeys:
    """All keys of the store: those with names, and digests of the unnamed ones that services made for themselves."""

    named: tuple[StoredKey, ...] = ()
    generated: tuple[str, ...] = ()
    sign_ins: tuple[SignIn, ...] = ()


class KeyStore(Protocol):
    async def load(self) -> KnownKeys: ...

    async def change(self, name: str, change: ChangeKey) -> StoredKey | None:
        """Changes one key and records it, in one transaction; durable on return. Conflict for a secret that another
        key has."""

    async def add_sign_in(self, sign_in: SignIn) -> None:
        """Durable on return. Those that are over are removed."""

    async def remove_sign_in(self, digest: str) -> None: ...

    async def list_actions(self, before: int | None, limit: int) -> list[tuple[int, AdminAction]]:
        """Newest first, with their sequences."""


class KeySource(Protocol):
    """What a service checks secrets against."""

    async def load(self) -> KnownKeys: ...


def show_keys(known: KnownKeys) -> tuple[AccessKey, ...]:
    """By name, without digests."""
    return tuple(key.shown for key in sorted(known.named, key=lambda one: one.name))
