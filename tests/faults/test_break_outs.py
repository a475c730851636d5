"""Programs that try to get out: what each attains in jails, and without any, which shows that the attempt is one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_house import ROOT
from tests.support.break_outs import ATTEMPTS, FILES, STOPPED_BY_LESS, STOPPED_FOR_USERS, Given, attained, within_reach
from tests.support.jailed import GUARDED, Jails, jails
from tests.support.tables import read_table

SOMEBODY = 1234
"""A user who owns nothing."""


@pytest.fixture(scope="module", params=GUARDED)
def jailed(request: pytest.FixtureRequest) -> Iterator[Jails]:
    with jails(request.param) as made:
        yield made


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    monkeypatch.setenv("SECRET_KEY", "sesame")
    with within_reach() as there:
        yield there


def test_no_attempt_succeeds(jailed: Jails, given: Given) -> None:
    assert attained(jailed, given) == set()


def test_nothing_outside_has_changed(jailed: Jails, given: Given) -> None:
    def seen() -> dict[str, tuple[int, int, float]]:
        held = {path.name: path.stat() for path in Path(str(given["folder"])).iterdir()}
        return {name: (stat.st_size, stat.st_mode, stat.st_mtime) for name, stat in held.items()}

    before = seen()
    attained(jailed, given, FILES)
    assert seen() == before


def test_without_walls_they_do_succeed(given: Given) -> None:
    """Else the tests above would show nothing."""
    stopped = STOPPED_BY_LESS | (set() if os.geteuid() == 0 else STOPPED_FOR_USERS)
    with jails("nothing") as unguarded:
        assert set(ATTEMPTS) - stopped - attained(unguarded, given) == set()


AS_SOMEBODY = read_table(__file__, "as_somebody.yaml", str)


@pytest.mark.skipif(os.geteuid() != 0, reason="the tests above are run by a user without privileges already")
def test_no_attempt_succeeds_where_the_service_has_no_privileges() -> None:
    python = next(filter(_runs_for_somebody, (sys.executable, "/usr/bin/python3")), None)
    if python is None:
        pytest.skip("no Python here can be run by another user")
    seen = _as_somebody(python, AS_SOMEBODY)
    assert [json.loads(line) for line in seen.stdout.splitlines()] == [
        [SOMEBODY, "user namespaces", []],
        [SOMEBODY, "no namespaces", []],
    ], seen.stderr


def _runs_for_somebody(python: str) -> bool:
    try:
        return _as_somebody(python, "import pydantic_core, tests.support.jailed").returncode == 0
    except OSError:
        return False


def _as_somebody(python: str, source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", source],
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        user=SOMEBODY,
        group=SOMEBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
