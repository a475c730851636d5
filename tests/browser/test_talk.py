"""A designer talks to a character about an event in a real browser, keeps the scene, and sees it served."""

import shutil
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from app.toolkit.templates import find_packaged_folder
from tests.support.chat_server import serving
from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways
from tests.support.sample_texts import HOSTILE_JSON
from tests.support.talking import speaks

pytestmark = pytest.mark.browser

EVENT = {"id": "rope", "time": "1312-04-03T09:15:00Z", "text": "The rope of the ferry broke.", "importance": 7}


def test_a_designer_talks_about_an_event_and_keeps_the_scene(
    browser: Browser, gateways: Gateways, tmp_path: Path
) -> None:
    shutil.copy(find_packaged_folder("character_sheets") / "hob_tarrant.yaml", tmp_path)
    with (
        serving(speaks(HOSTILE_JSON)) as policy,
        browser.new_context(viewport={"width": 390, "height": 800}) as context,
    ):
        policies = {f"ATROPOS_ENVS_POLICIES__{name}__MODEL": name for name in ("WARM", "COLD")}
        policies |= {f"ATROPOS_ENVS_POLICIES__{name}__BASE_URL": policy.url for name in ("WARM", "COLD")}
        gateway = gateways.of(ATROPOS_ENVS_CHARACTER_SHEETS=str(tmp_path), **policies)
        httpx.post(f"{gateway.url}/worlds/pier/events", json={"events": [EVENT]}, timeout=120).raise_for_status()
        page, watch = watched(context)
        page.goto(f"{gateway.url}/view/talk?character=hob_tarrant")
        page.get_by_label("World").select_option("pier")
        for name in ("warm", "cold"):
            page.get_by_role("checkbox", name=name).check()
        page.get_by_label("You say").fill("Is the ferry running?")
        page.get_by_role("button", name="Say it").click()
        page.wait_for_url("**/view/talk?turn=*")
        replies = [page.get_by_role("article", name=f"Reply of {name}") for name in ("warm", "cold")]
        for reply in replies:
            expect(reply).to_contain_text('document.title = "owned"')
        page.get_by_text("What was retrieved").click()
        expect(page.locator(".passages")).to_contain_text("The rope of the ferry broke.")
        replies[1].get_by_role("button", name="This one is better").click()
        expect(page.locator(".caution")).to_contain_text("marked as the better one")
        page.get_by_role("button", name="Keep as scene").click()
        expect(page.locator(".caution")).to_contain_text("served from now on")
        page.goto(f"{gateway.url}/view/characters/hob_tarrant")
        expect(page.get_by_text("Is the ferry running?", exact=True)).to_be_attached()
        page.goto(f"{gateway.url}/view/talk")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert (wide <= 390, "owned" in page.title(), strangers(watch, gateway.url), violations(page)) == (
            True,
            False,
            [],
            [],
        )
        asked = [received.body.get("stream") for received in policy.received]
        assert (watch.complaints, asked) == ([], [True, True])
