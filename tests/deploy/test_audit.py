"""What is said of an audit, by what could be looked up."""

import json

import pytest

from deploy.audit import summarise

SOUND = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "code", "first"),
    [
        ([SOUND], 0, "1 packages audited, 0 known."),
        ([SOUND, BAD], 1, "b 2: CVE-1, mended in 3"),
        ([SOUND, UNKNOWN], 2, "NOT AUDITED: 1 of 2 packages; the index knows not c."),
        ([UNKNOWN], 2, "NOT AUDITED: 1 of 1 packages; the index knows none of them."),
        ([], 2, "0 packages audited, 0 known."),
    ],
)
def test_only_a_package_that_was_looked_up_is_sound(packages: list[object], code: int, first: str) -> None:
    found, lines = summarise(0, json.dumps({"dependencies": packages}), "")
    assert (found, lines[0]) == (code, first)


def test_without_a_network_it_says_so() -> None:
    code, lines = summarise(1, "", "Traceback\nConnectionError: no such host\n")
    assert (code, lines[0]) == (2, "NOT AUDITED: ConnectionError: no such host")
