"""Every test that the page of promises names is there."""

import re

from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_each_promise_names_a_test_that_exists() -> None:
    promises = [line for line in PAGE.splitlines() if line.startswith("| ") and "| the test" not in line][1:]
    named = [re.search(r"`(tests/[\w/.]+)::(test_\w+)`", line) for line in promises]
    missing = [
        line
        for line, found in zip(promises, named, strict=True)
        if found is None or f"def {found[2]}(" not in (ROOT / found[1]).read_text(encoding="utf-8")
    ]
    assert (missing, len(promises) > 20) == ([], True)
