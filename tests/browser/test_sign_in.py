"""A person signs in with a key, looks around, tries a route, and signs out."""

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways

pytestmark = pytest.mark.browser
KEY = "gw_of-the-settings"


def test_a_person_signs_in_and_out(browser: Browser, gateways: Gateways) -> None:
    gateway = gateways.of(ATROPOS_ENVS_API_KEY=KEY)
    with browser.new_context() as context:
        page, watch = watched(context)
        page.goto(f"{gateway.url}/view/groups?judge=ann")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.get_by_label("Key").fill("gw_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("no key of this service")
        watch.complaints.clear()  # the browser's own line about the 403
        page.get_by_label("Key").fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{gateway.url}/view/groups?judge=ann")
        expect(page.locator(".who")).to_contain_text("settings")
        tried = page.evaluate("fetch('/worlds/w/events', {method: 'POST', body: '{}'}).then((answer) => answer.status)")
        watch.complaints.clear()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.goto(f"{gateway.url}/")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert (strangers(watch, gateway.url), violations(page), watch.complaints) == ([], [], [])
    assert tried in {415, 422}
