"""An engineer answers a task in a terminal, and reads the same reason on the page that the command names."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, expect

from tests.support.commands import ended
from tests.support.gateways import Gateways

pytestmark = pytest.mark.browser


def test_a_reply_that_is_tried_is_explained_in_the_same_words_on_its_page(browser: Browser, gateways: Gateways) -> None:
    url = gateways.of().url
    with ThreadPoolExecutor(1) as apart:  # this thread has the loop of Playwright
        done = apart.submit(ended, "try", "gsm8k", "--reply", "I think #### 1", "--json", "--url", url).result()
    tried = json.loads(done.stdout)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{url}/view/groups/{tried['reply']['group_id']}")
        expect(page.locator("#completion-1")).to_contain_text(tried["why"][0])
