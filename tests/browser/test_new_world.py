"""A designer makes a world with an event by forms, and talks to a character about it, without a model or a command."""

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import strangers, violations, watched
from tests.support.gateways import Gateways

pytestmark = pytest.mark.browser


def test_a_designer_makes_a_world_and_talks_in_it(browser: Browser, gateways: Gateways) -> None:
    gateway = gateways.of()
    with browser.new_context(viewport={"width": 390, "height": 800}) as context:
        page, watch = watched(context)
        page.goto(f"{gateway.url}/view/worlds")
        page.get_by_role("link", name="New world").first.click()
        page.get_by_label("Name of the world").fill("Salt Market")
        page.get_by_label("What happens").fill("The tide took the old pier.")
        expect(page.locator("#checked")).to_contain_text("Saved as world salt_market, event the_tide_took_the_old.")
        page.get_by_label("What happens").fill("")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_label("Name of the world")).to_have_value("Salt Market")
        expect(page.locator("#new-text-about")).to_contain_text("Write what happens.")
        page.get_by_label("What happens").fill("The tide took the old pier.")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").first).to_contain_text("Saved: event the_tide_took_the_old")
        page.get_by_role("link", name="New lorebook").click()
        page.get_by_label("Name of the lorebook").fill("Salt")
        page.get_by_label("Words that bring it up").fill("salt")
        page.get_by_label("What characters then know").fill("Salt is dear.")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("status").get_by_role("link", name="Talk in this world").click()
        expect(page.get_by_label("World")).to_have_value("salt_market")
        page.get_by_label("Character").select_option("hob_tarrant")
        page.get_by_label("You say").fill("Is it safe out there today?")
        page.get_by_role("button", name="Say it").click()
        reply = page.get_by_role("article", name="Reply of stand-in")
        expect(reply).to_contain_text("Safer than yesterday. The tide took the old pier. (stand-in)")
        page.get_by_role("button", name="Ask the judges").click()
        expect(reply).to_contain_text("offline judge: counts words, for trying things only")
        expect(page.get_by_label("World")).to_have_value("salt_market")
        wide = page.evaluate("document.documentElement.scrollWidth")
        refused = [text for text in watch.complaints if "422" in text]  # the form without an event
        assert (wide <= 390, strangers(watch, gateway.url), violations(page)) == (True, [], [])
        assert (len(refused), watch.complaints) == (1, refused)
