"""What this process knows to be in the store, for a short time without asking it again."""

import time
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

RECHECK_SECONDS = 5.0
"""After so long a value is read or stored again, since the store may have lost it in a failover or a restore."""


class StoreMemory(Generic[KeyT, ValueT]):
    """Values by key, each with the moment at which the store was last known to have it. A full memory starts anew."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[KeyT, tuple[ValueT, float]] = {}

    def put(self, key: KeyT, value: ValueT) -> None:
        """Call when the store has just returned or taken the value."""
        if key not in self._entries and len(self._entries) >= self._most:
            self._entries.clear()
        self._entries[key] = (value, time.monotonic())

    def get(self, key: KeyT) -> ValueT | None:
        """The last known value, however old: what is stored again if the store has lost it."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def get_recent(self, key: KeyT) -> ValueT | None:
        """The value, unless the store must be asked again."""
        entry = self._entries.get(key)
        return None if entry is None or time.monotonic() - entry[1] >= RECHECK_SECONDS else entry[0]
