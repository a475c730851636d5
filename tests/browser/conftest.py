"""One browser for all tests of this folder, and a loud word where there is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.chromium import MISSING, chromium, chromium_path


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if chromium_path() is None:
        pytest.skip(MISSING)
    with chromium() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They run in one worker. What takes minutes runs beside them."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.xdist_group("browser"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if chromium_path() is None:
        terminalreporter.section("browser", red=True, bold=True)
        terminalreporter.line(MISSING, red=True, bold=True)
