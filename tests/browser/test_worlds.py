"""A designer's way through a world in a real browser: from the list to the reason why a character does not know."""

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways
from tests.support.sample_texts import HOSTILE_JSON

pytestmark = pytest.mark.browser

EVENTS = [
    {"id": "rope", "time": "1312-04-03T09:15:00Z", "text": "The rope of the ferry broke.", "importance": 7},
    {
        "id": "bridge",
        "time": "1312-04-03T11:00:00Z",
        "text": "The Margravine ordered a bridge to end the ferry.",
        "visibility": ["ottoline_vesk"],
    },
    {"id": "hostile", "time": "1312-04-02T11:00:00Z", "text": HOSTILE_JSON},
]


def test_a_designer_finds_out_why_hob_does_not_know(browser: Browser, gateways: Gateways) -> None:
    gateway = gateways.of()
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        httpx.post(f"{gateway.url}/worlds/shore/events", json={"events": EVENTS}, timeout=120).raise_for_status()
        page, watch = watched(context)
        page.goto(f"{gateway.url}/")
        page.get_by_role("link", name="Worlds").click()
        page.get_by_role("link", name="shore", exact=True).click()
        expect(page.locator(".event")).to_have_count(len(EVENTS))
        page.get_by_label("Character").fill("hob_tarrant")
        page.get_by_label("At (UTC)").fill("1312-04-03T12:00:00")
        page.get_by_label("The player says").fill("Is the ferry running?")
        page.get_by_role("button", name="Show what is retrieved").click()
        expect(page.get_by_role("region", name="Retrieved", exact=True)).to_contain_text("The rope of the ferry broke.")
        hidden = page.get_by_role("region", name="Hidden", exact=True).locator("tbody tr").all_inner_texts()
        prompt = page.locator(".conversation").inner_text()
        expect(page.get_by_label("At (UTC)")).to_have_value("1312-04-03T12:00")
        assert (len(hidden), "not visible to the character" in hidden[0]) == (1, True)
        assert ("The rope of the ferry broke." in prompt, "bridge to end" in prompt) == (True, False)
        assert ("owned" in page.title(), strangers(watch, gateway.url), violations(page)) == (False, [], [])
        wide = []
        for path in ("/view/worlds", "/view/worlds/shore", "/view/worlds/shore/why?character=hob_tarrant&q=ferry"):
            page.goto(gateway.url + path)
            for width in (320, 390, 768):
                page.set_viewport_size({"width": width, "height": 800})
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    wide.append((path, width))
        assert (watch.complaints, wide) == ([], [])
