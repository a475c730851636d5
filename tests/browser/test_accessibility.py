"""What keeps people from using a page: axe-core finds nothing serious, in light and dark, at a desk and on a phone."""

from importlib.resources import files
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from tests.support.chromium import served
from tests.support.gateways import Gateways
from tests.support.sample_views import sample_groups, viewer_app

pytestmark = pytest.mark.browser

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
FINDINGS = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => [one.id, one.nodes[0].html.slice(0, 200)]);
}"""
SAMPLES = ("/", "/view/groups?min_mean=x", *(f"/view/groups/group_{number:032x}" for number in (1, 5, 7)))
SAMPLES += ("/view/stats?by=label", "/view/judges", "/view/groups/nope")
WHOLE = (
    "/view/label",
    "/view/export",
    "/view/runs",
    "/view/characters/hob_tarrant",
    "/view/worlds",
    "/sign-in",
    "/view/x",
)
SCREENS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 390))


def look_through(page: Page, address: str) -> list[tuple[str, list[str]]]:
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.evaluate(AXE)
    found: list[list[str]] = page.evaluate(FINDINGS)
    return [(address, one) for one in found]


COLOURED = ("/", "/view/groups?min_mean=x", f"/view/groups/group_{1:032x}")
"""Enough for what differs in the dark and on a phone."""


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_axe_finds_nothing_serious(
    browser: Browser, gateways: Gateways, scheme: Literal["light", "dark"], width: int
) -> None:
    url = gateways.of().url
    with (
        served(viewer_app(sample_groups())) as origin,
        browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}) as context,
    ):
        page = context.new_page()
        samples, whole = (SAMPLES, WHOLE) if scheme == "light" else (COLOURED, WHOLE[:2])
        addresses = [*(origin + path for path in samples), *(url + path for path in whole)]
        assert [finding for address in addresses for finding in look_through(page, address)] == []
