"""One browser per module, and a loud word where there is none."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.chromium import MISSING, chromium, chromium_path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if chromium_path() is None:
        pytest.skip(MISSING)
    with chromium() as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if chromium_path() is None:
        terminalreporter.section("browser", red=True, bold=True)
        terminalreporter.line(MISSING, red=True, bold=True)
