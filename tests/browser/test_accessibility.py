"""What keeps people from using a page: axe-core finds nothing serious, in light and dark, at a desk and on a phone."""

from collections.abc import Iterator
from importlib.resources import files
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from tests.support.chromium import served
from tests.support.gateways import Gateways
from tests.support.sample_views import sample_groups, viewer_app
from tests.support.tables import read_table

pytestmark = pytest.mark.browser

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
FINDINGS = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => [one.id, one.nodes[0].html.slice(0, 200)]);
}"""
SAMPLES = ("/", "/view/groups?min_mean=x", *(f"/view/groups/group_{number:032x}" for number in (1, 5, 7)))
SAMPLES += ("/view/judges", "/view/judges/careful", "/view/groups/nope")
WHOLE = read_table(__file__, "accessible_pages.yaml", list[str])
COLOURED = ("/", "/view/groups?min_mean=x", f"/view/groups/group_{1:032x}", "/view/label", "/view/export")
"""Enough for what differs in the dark and on a phone."""
DESK: Final[ViewportSize] = {"width": 1280, "height": 800}
PHONE: Final[ViewportSize] = {"width": 390, "height": 800}
PREPARE = """(most) => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  document.querySelectorAll(`:is(tbody, ul, ol) > :nth-child(n + ${most + 1})`).forEach((one) => one.remove());
}"""
ROWS = 20
"""Of a table or list: the others are of the same kind, and axe-core takes ten seconds for hundreds of them."""


def look_through(page: Page, origin: str, path: str) -> Iterator[tuple[str, str, list[str]]]:
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESK)
    page.goto(origin + path)
    page.evaluate(PREPARE, ROWS)
    page.evaluate(AXE)
    yield from ((path, "light", one) for one in page.evaluate(FINDINGS))
    if path in COLOURED:
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size(PHONE)
        yield from ((path, "dark", one) for one in page.evaluate(FINDINGS))


def test_axe_finds_nothing_serious(browser: Browser, gateways: Gateways) -> None:
    url = gateways.of().url
    with served(viewer_app(sample_groups())) as origin, browser.new_context() as context:
        page = context.new_page()
        places = [*((origin, path) for path in SAMPLES), *((url, path) for path in WHOLE)]
        assert [finding for place in places for finding in look_through(page, *place)] == []
