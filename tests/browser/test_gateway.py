"""The whole service in a browser: every example runs with one press, and the pages show what came of it."""

import pytest
from playwright.sync_api import Browser, Page, expect

from app.main.components import discover
from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def _execute(page: Page, environment: str, verb: str) -> str:
    """The status that Swagger UI shows after one press. The block is closed again: each open one slows the next."""
    operation = f"{verb}_envs_{environment}_{verb}_post"
    block = page.locator(f"#operations-{environment}-{operation}")
    if not block.is_visible():  # groups are folded
        page.locator(f"#operations-tag-{environment}").click()
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Execute").click()
    status = block.locator(".live-responses-table .response .response-col_status").first
    expect(status).to_be_visible(timeout=60_000)
    told = status.inner_text().split()[0]
    block.locator(".opblock-summary-control").click()
    return told


def test_every_example_works_and_its_group_can_be_looked_at(browser: Browser, gateways: Gateways) -> None:
    found = discover()
    verbs = [(name, verb) for name in found for verb in ("next_batch", "score")]
    verbs += [(name, "step") for name in found if found[name].multi_turn]
    gateway = gateways.of()
    with browser.new_context() as context:
        page, watch = watched(context)
        page.goto(f"{gateway.url}/docs")
        statuses = {verb: _execute(page, *verb) for verb in verbs}
        page.goto(f"{gateway.url}/view/groups")
        page.locator("tbody tr a").first.click()
        expect(page.locator("h1")).to_be_visible()
        assert (strangers(watch, gateway.url), violations(page), watch.complaints) == ([], [], [])
    assert statuses == dict.fromkeys(verbs, "200")
