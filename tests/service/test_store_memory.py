"""What is known to be stored: for how long it is trusted, and that a full memory starts anew."""

import pytest

from app.service.catalogue import StoreMemory


def test_a_value_is_trusted_for_a_while_and_then_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    memory = StoreMemory[str, int](2)
    memory.put("a", 1)
    seen = []
    for now[0] in (104.9, 105.0):
        seen.append((memory.get_recent("a"), memory.get("a")))
    memory.put("a", 1)
    seen.append((memory.get_recent("a"), memory.get("b")))
    assert seen == [(1, 1), (None, 1), (1, None)]


def test_a_full_memory_starts_anew_but_not_for_what_it_knows() -> None:
    memory = StoreMemory[str, int](2)
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        memory.put(key, value)
    before = [memory.get(key) for key in "abc"]
    memory.put("c", 4)
    assert (before, [memory.get(key) for key in "abc"]) == ([3, 2, None], [None, None, 4])
