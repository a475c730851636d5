"""Twenty pairs are labelled with the keyboard alone, and agreement is counted when all are drawn."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways

pytestmark = pytest.mark.browser

RUN = "to-be-labelled"
PAIRS = 20
SHOWN = "#agreement ~ .scroll tbody tr"


def store_pairs(url: str) -> None:
    asked = {"run": RUN, "batch_size": PAIRS, "cursor": 0}
    tasks = httpx.post(f"{url}/envs/npc_arena/next-batch", json=asked, timeout=60).raise_for_status().json()["tasks"]
    said = [{"text": "Not today, friend. Ask me at the quay."}, {"text": "<script>alert(1)</script> Sure thing!"}]
    groups = [{"task_id": task["task_id"], "completions": said} for task in tasks]
    body = {"run": RUN, "groups": groups}
    httpx.post(f"{url}/envs/npc_arena/score", json=body, timeout=120).raise_for_status()


def label_all(page: Page) -> None:
    for number in range(PAIRS):
        page.keyboard.press("1" if number % 3 else "2")
        page.keyboard.press("n")
        with page.expect_navigation():
            page.keyboard.press("Enter")


def test_twenty_pairs_are_labelled_by_keyboard(browser: Browser, gateways: Gateways) -> None:
    gateway = gateways.of()
    store_pairs(gateway.url)
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page, watch = watched(context)
        page.goto(f"{gateway.url}/view/label?environment=npc_arena&run={RUN}")
        page.get_by_label("Your name").fill("ada")
        page.keyboard.press("Enter")
        expect(page.get_by_role("radio", name="1 A")).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_contain_text("A is better, B is better, equal")
        page.keyboard.press("Escape")
        expect(page.locator(SHOWN)).to_have_count(0)
        label_all(page)
        shown = page.locator(SHOWN).first.inner_text()
        assert (strangers(watch, gateway.url), violations(page), watch.complaints) == ([], [], [])
    labels, agreed = re.findall(r"\d+ labels|\d+ of \d+", shown)
    assert (labels, agreed.partition(" of ")[2]) == ("20 labels", "20")
