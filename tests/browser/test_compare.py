"""Two checkpoints of one run are compared on one scene in a real browser, by pressing what is there."""

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways
from tests.support.sample_texts import HOSTILE_JSON as HOSTILE

pytestmark = pytest.mark.browser

RUN = "two-checkpoints"
SAID = {
    10: ("I see a stranger at my ferry and the river is high.", HOSTILE),
    20: ("I see a stranger at my ferry and the rope is new. Pay first, then we talk of the river.", HOSTILE),
}


def send_both(url: str) -> None:
    """The same task answered at two steps."""
    asked = {"run": RUN, "batch_size": 1, "cursor": 0}
    (task,) = httpx.post(f"{url}/envs/npc_arena/next-batch", json=asked, timeout=120).json()["tasks"]
    for step, texts in SAID.items():
        group = {"task_id": task["task_id"], "completions": [{"text": text} for text in texts]}
        body = {"run": RUN, "policy": {"model": "small", "step": step}, "groups": [group]}
        httpx.post(f"{url}/score", json=body, timeout=120).raise_for_status()


def test_two_checkpoints_are_compared_on_one_scene(browser: Browser, gateways: Gateways) -> None:
    gateway = gateways.of()
    send_both(gateway.url)
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page, watch = watched(context)
        page.goto(f"{gateway.url}/view/runs/{RUN}")
        expect(page.locator("#chart-reward").get_by_role("img")).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_label("Run", exact=True).get_by_role("link", name="Compare").click()
        first, second = (page.get_by_role("group", name=name, exact=True) for name in ("First", "Second"))
        expect(first.get_by_label("Run")).to_have_value(RUN)
        expect(second.get_by_label("Steps")).to_have_value("20")
        first.get_by_label("Steps").fill("10")
        second.get_by_label("Steps").fill("15-25")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#notice")).to_contain_text("Scored by offline")
        pair = page.get_by_label("Task 1", exact=True)
        expect(pair.locator(".card")).to_have_count(2)
        expect(pair.locator(".card").nth(1)).to_contain_text("the rope is new")
        pair.locator("summary", has_text="Word by word").click()
        expect(pair.locator("ins", has_text="rope")).to_be_visible()
        assert (strangers(watch, gateway.url), violations(page), watch.complaints) == ([], [], [])
        for width in (320, 768):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        pair.locator(".reward").nth(1).click()
        expect(page.locator("#completion-1")).to_contain_text("the rope is new")
        page.get_by_label("Neighbours").get_by_role("link", name="Compare").click()
        expect(first.get_by_label("Steps")).to_have_value("10")
