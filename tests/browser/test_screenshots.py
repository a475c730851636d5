"""Pictures of every page are made from the demo's data, and no page is wider than its window."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from docs.screenshots import VARIANTS, list_pages, take_pictures
from tests.support.commands import ended
from tests.support.gateways import Gateways

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_every_page_fits_its_window(browser: Browser, gateways: Gateways, tmp_path: Path) -> None:
    url = gateways.of().url
    with ThreadPoolExecutor(1) as beside:  # the browser's own event loop runs in this thread
        done = beside.submit(
            ended, "demo", "--steps", "1", "--batch-size", "1", "--group-size", "2", "--url", url
        ).result()
    wide = take_pictures(browser, url, tmp_path, VARIANTS)
    names = {name for name, _ in list_pages(url)}
    expected = sorted(f"{name}-{scheme}-{width}.webp" for name in names for scheme, width in VARIANTS)
    assert {"group", "label", "trace"} <= names  # pages of groups, which the demo must have
    assert (done.returncode, wide, sorted(file.name for file in tmp_path.iterdir())) == (0, [], expected)
