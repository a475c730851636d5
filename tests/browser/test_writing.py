"""An author's way through a real browser: an event and a sheet are corrected, and the next tasks are made from them."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways
from tests.support.sample_texts import HOSTILE_JSON

pytestmark = pytest.mark.browser

WORLD, HERO = "inkwell", "mosswether"
EVENT = {"id": "owl", "time": "1312-04-03T09:15:00Z", "text": "An owl sat on the gate.", "importance": 9}
ASKED = {"batch_size": 1, "select": {"character": [HERO]}, "params": {"world": WORLD, "scenes": "by_hand"}}
MARKER = "keeps a tally of every owl"


def correct_event(page: Page, url: str) -> None:
    page.goto(f"{url}/view/worlds/{WORLD}")
    page.get_by_text("owl", exact=True).click()
    page.get_by_role("link", name="Correct").filter(visible=True).click()
    text = page.get_by_label("Text (YAML)")
    text.fill(text.input_value().replace("An owl", "A heron"))
    expect(page.locator(".changes")).to_contain_text("A heron sat on the gate.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_have_text("It is saved.")


def test_what_is_corrected_in_the_browser_is_in_the_next_prompt(browser: Browser, gateways: Gateways) -> None:
    gateway = gateways.of()
    events = {"events": [EVENT, {**EVENT, "id": "hostile", "text": HOSTILE_JSON, "importance": 0}]}
    httpx.post(f"{gateway.url}/worlds/{WORLD}/events", json=events, timeout=120).raise_for_status()
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page, watch = watched(context)
        correct_event(page, gateway.url)
        text = page.get_by_label("Text (YAML)")

        page.goto(f"{gateway.url}/view/characters/{HERO}")
        page.get_by_role("link", name="Edit").click()
        before = text.input_value()
        text.fill(before.replace("schema_version: 1", "schema_version: one"))
        expect(page.locator(".findings")).to_contain_text("meta.schema_version")
        text.fill(re.sub(r"(?m)^  traits: \[", f"  traits: [{MARKER}, ", before))
        expect(page.locator(".conversation")).to_contain_text(MARKER)
        page.get_by_label("Note").fill(HOSTILE_JSON)
        page.get_by_role("button", name="Publish").click()
        expect(page.get_by_role("status").first).to_have_text("Revision 1 is published.")
        note = page.get_by_role("region", name="Revisions").locator("tbody tr").first.inner_text()
        task = httpx.post(f"{gateway.url}/envs/npc_arena/next-batch", json=ASKED, timeout=120).json()["tasks"][0]
        page.get_by_role("button", name="Go back to the file").click()
        expect(page.get_by_role("status").first).to_contain_text("is taken back")
        prompt = task["messages"][0]["content"]
        assert (MARKER in prompt, "A heron sat on the gate." in prompt) == (True, True)
        assert (text.input_value() == before, "<script" in note or "<img" in note) == (True, True)
        assert ("owned" in page.title(), strangers(watch, gateway.url), violations(page)) == (False, [], [])
        assert watch.complaints == []
