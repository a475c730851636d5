"""Reports opened from disk in a real browser."""

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from app.evaluation.comparison import compare_evaluations, render_html
from app.evaluation.report import build_report
from tests.support.chromium import violations, watched
from tests.support.evaluations import hostile, hostile_tournament, rewarded

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    plain = rewarded({place: (place % 5 / 4, 1.0, 0.5, 0.25) for place in range(40)})
    made = {
        "hostile": render_html(build_report(hostile())),
        "plain": render_html(build_report(plain)),
        "comparison": render_html(compare_evaluations(plain, plain)),
        "hostile comparison": render_html(compare_evaluations(hostile(), hostile())),
        "hostile tournament": render_html(hostile_tournament()),
    }
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


def test_reports_open_from_disk_and_stay_by_themselves(browser: Browser, pages: dict[str, Path]) -> None:
    windows: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (390, "dark"))
    for file in pages.values():
        with browser.new_context() as context:
            page, watch = watched(context)
            page.goto(file.as_uri())
            for width, scheme in windows:
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": 800})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, file.name
            assert (watch.complaints, watch.requests, violations(page)) == ([], [file.as_uri()], []), file.name
            assert page.title() != "mine"
