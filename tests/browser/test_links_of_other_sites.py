"""A link on a page of another site, pressed in a real browser."""

from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from tests.support.atropos import TRAINER, group
from tests.support.gateways import Gateways

pytestmark = pytest.mark.browser

OTHER_SITE = "http://other-site.example/"


def queue_one_group(url: str) -> None:
    httpx.post(f"{url}/register", json=TRAINER, timeout=120).raise_for_status()
    httpx.post(f"{url}/scored_data", json=group(2), timeout=120).raise_for_status()


def read_queue(url: str) -> Any:
    return httpx.get(f"{url}/status", timeout=120).raise_for_status().json()


def test_a_link_that_resets_a_queue_changes_nothing_and_one_to_a_page_opens_it(
    browser: Browser, gateways: Gateways
) -> None:
    gateway = gateways.of()
    atropos = f"{gateway.url}/compat/atropos/linked"
    queue_one_group(atropos)
    before = read_queue(atropos)
    links = f'<a id="reset" href="{atropos}/reset_data">a prize</a> <a id="page" href="{gateway.url}/">a page</a>'
    pressed: list[int] = []
    with browser.new_context() as context:
        page = context.new_page()
        page.route(f"{OTHER_SITE}**", lambda route: route.fulfill(body=links, content_type="text/html"))
        for link in ("#reset", "#page"):
            page.goto(OTHER_SITE)
            with page.expect_response(lambda answer: answer.url.startswith(gateway.url)) as answer:
                page.click(link)
            pressed.append(answer.value.status)
    after = read_queue(atropos)
    typed = httpx.get(f"{atropos}/reset_data", timeout=120).status_code  # as programs send it
    assert (pressed, after, typed) == ([403, 200], before, 200)
    assert (before["queue_size"], read_queue(atropos)["queue_size"]) == (1, 0)
