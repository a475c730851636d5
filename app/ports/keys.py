"""Storage of keys, of what was done to them, and of what they use."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.access import AccessKey, AdminAction, SignIn, StoredKey
from app.domain.budgets import Amount
from app.domain.quotas import KeyQuotas, KeyUsage, QuotaUse

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

    async def add_sign_in(self, sign_in: SignIn, most: int) -> None:
        """Durable on return. Those that are over are removed. Conflict where the key has `most` already."""

    async def remove_sign_in(self, digest: str) -> None: ...

    async def list_actions(self, before: int | None, limit: int) -> list[tuple[int, AdminAction]]:
        """Newest first, with their sequences."""


@dataclass(frozen=True)
class HandOutPart:
    """Tasks of one environment that a batch is to have."""

    environment: str
    count: int
    bound: Amount | None = None
    """What judging one group takes at most; None without judges."""


@dataclass(frozen=True)
class HandOut:
    """A batch of tasks that a key asks for."""

    key: str
    quotas: KeyQuotas
    run: str | None
    is_leased: bool
    parts: tuple[HandOutPart, ...]


@dataclass(frozen=True)
class HandOutGrant:
    """`exceeded` is the quota that does not allow the batch: nothing is reserved then."""

    exceeded: QuotaUse | None
    uses: tuple[QuotaUse, ...]
    hold: str = ""
    expected: Mapping[str, Amount] = field(default_factory=dict)
    """By environment, what judging one group is expected to take."""


class QuotaStore(Protocol):
    """Counts what keys use. Changes are atomic over all processes on the database, and durable on return."""

    async def reserve(self, asked: HandOut) -> HandOutGrant:
        """Counts the request where requests are limited. If all quotas allow it, reserves what the batch may take and
        admits its run for a day."""

    async def confirm(self, key: str, hold: str, leases: Mapping[str, Amount]) -> None:
        """What was reserved for the batch is reserved for each of its leases instead."""

    async def admit_runs(self, key: str, quotas: KeyQuotas, runs: Collection[str]) -> QuotaUse | None:
        """Counts a request for scores where requests are limited, and admits the runs until the day ends; or the quota
        that does not allow one that was not admitted before."""

    async def load_usage(self, key: str) -> KeyUsage: ...


class KeySource(Protocol):
    """What a service checks secrets against."""

    async def load(self) -> KnownKeys: ...


def show_keys(known: KnownKeys) -> tuple[AccessKey, ...]:
    """By name, without digests."""
    return tuple(key.shown for key in sorted(known.named, key=lambda one: one.name))
