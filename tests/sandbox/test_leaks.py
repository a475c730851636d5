"""What a program leaves: the next one in the same jail finds everything as the first one in a new jail does."""

import hashlib

import pytest

from tests.support.jailed import GUARDS, STRENGTHS, Jails, jails
from tests.support.tables import read_table

PROGRAMS = read_table(__file__, "leaks.yaml", dict[str, str])


@pytest.mark.parametrize("strength", GUARDS)
def test_the_next_program_finds_what_the_first_one_in_a_new_jail_finds(strength: str) -> None:
    with jails(strength) as jailed:
        first, did, second = (
            jailed.said(PROGRAMS["looks"]),
            jailed.said(PROGRAMS["leaves"]),
            jailed.said(PROGRAMS["looks"]),
        )
        process = jailed.programs.ids
    assert (did, second, len(process)) == (True, first, 1)


def test_without_seccomp_objects_of_system_v_are_not_passed_on_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRENGTHS, "no seccomp", (("user",), ("landlock",)))
    with jails("no seccomp") as weaker:
        made = weaker.said("import ctypes\ndef f(): return ctypes.CDLL(None).shmget(4711, 4096, 0o1666) >= 0")
        found = weaker.said("import ctypes\ndef f(): return ctypes.CDLL(None).shmget(4711, 0, 0) >= 0")
    assert (made, found) == (True, False)


def test_what_one_draws_tells_nothing_of_what_the_next_draws(jailed: Jails) -> None:
    drawn = [jailed.said(PROGRAMS["draws"]) for _ in range(5)]
    values = [value for one in drawn if isinstance(one, list) for value in one]
    assert (len(values), len(set(map(str, values)))) == (20, 20)


def test_texts_hash_alike_in_every_program(jailed: Jails) -> None:
    """As with a fixed seed in an interpreter of their own: the order of a set is that of the run before."""
    seen = [jailed.said("def f(): return [hash('a text'), list({'a', 'b', 'c', 'd', 'e'})]") for _ in range(2)]
    assert seen[0] == seen[1]


LEFT = "left-0123456789abcdef"
DIGEST = hashlib.sha256(LEFT.encode("ascii")).hexdigest()


def test_memory_holds_nothing_of_another_program_and_of_a_later_call(jailed: Jails) -> None:
    """A program that reads all of its memory finds the argument that it was given, and no other."""
    before = jailed.said(PROGRAMS["reads_memory"], DIGEST, LEFT)
    later = jailed.run(PROGRAMS["reads_memory"], (DIGEST,), (DIGEST, LEFT))
    after = jailed.said(PROGRAMS["reads_memory"], DIGEST)
    assert (before, [one.value for one in later.returned], after) == (True, [False, True], False)
