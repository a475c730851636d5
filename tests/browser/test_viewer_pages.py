"""The pages in a real browser: nothing refused, nothing fetched from elsewhere, nothing a model wrote comes alive."""

import re
from collections.abc import Iterator
from itertools import product

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import Watch, served, strangers, violations, watched
from tests.support.sample_views import sample_groups, viewer_app

pytestmark = pytest.mark.browser

GROUP = "/view/groups/group_{:032x}"
PAGES = ["/", "/view/groups?environment=rlaif", "/view/judges", *map(GROUP.format, (1, 2, 4, 5, 6, 7))]


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    with served(viewer_app(sample_groups())) as address:
        yield address


@pytest.fixture
def visit(browser: Browser) -> Iterator[tuple[Page, Watch]]:
    permissions = ["clipboard-read", "clipboard-write"]
    with browser.new_context(viewport={"width": 1280, "height": 800}, permissions=permissions) as context:
        yield watched(context)


def untroubled(page: Page, watch: Watch, origin: str) -> None:
    assert (watch.complaints, strangers(watch, origin), violations(page)) == ([], [], [])


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_without_a_complaint_and_fits_every_window(
    visit: tuple[Page, Watch], origin: str, path: str
) -> None:
    page, watch = visit
    response = page.goto(origin + path)
    assert response is not None
    assert (response.status, {f"{origin}{path}", f"{origin}/favicon.svg"} <= set(watch.requests)) == (200, True)
    assert page.evaluate("getComputedStyle(document.querySelector('.top')).display") == "flex"
    wide = []
    for scheme, width in product(("light", "dark"), (320, 390, 768, 1920)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 800})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wide.append((scheme, width))
    assert wide == []
    untroubled(page, watch, origin)


def test_tools_calls_and_results_can_be_read(visit: tuple[Page, Watch], origin: str) -> None:
    page, watch = visit
    page.goto(origin + GROUP.format(7))
    tool = page.locator(".tool").first
    expect(tool).to_be_hidden()
    page.get_by_text("2 tools: find_order, refund").click()
    expect(tool).to_contain_text("As printed on the bill.")
    best, guessed, broken = page.locator(".card").all()
    assert best.locator(".message .role").all_inner_texts() == [
        "assistant",
        "tool · find_order",
        "assistant",
        "tool · refund",
        "assistant",
    ]
    call = best.locator(".call").nth(1)
    shown = (call.locator(".call-name").inner_text(), call.locator("dt").all_inner_texts())
    values = call.locator("dd").all_inner_texts()
    assert (shown, values) == (("refund", ["number", "items", "reason"]), ["1204", '["blue cup"]', '"broken"'])
    expect(guessed.locator(".result.failed")).to_contain_text("does not fit its schema")
    expect(broken.locator(".call")).to_contain_text('{"number": NaN}')
    untroubled(page, watch, origin)


def test_a_group_is_read_compared_word_by_word_and_worked_out(visit: tuple[Page, Watch], origin: str) -> None:
    page, watch = visit
    page.goto(origin + "/")
    page.get_by_role("link", name="They say a man came in").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("mirela_voss")
    assert page.locator(".card .reward").all_inner_texts() == ["0.940", "0.470", "0.180", "0.000"]
    page.get_by_text("What judges read and answered").click()
    page.get_by_text("What the judge answered").first.click()
    expect(page.get_by_text('{"verdicts"').first).to_be_visible()
    page.locator(".card .reward").nth(1).click()
    expect(page.locator("#why-4")).to_be_in_viewport()
    expect(page.locator("#why-4 .terms").first).to_be_visible()
    page.goto(f"{origin}{GROUP.format(1)}?at=1")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#difference")).to_be_in_viewport()
    assert ("at=1" in page.url, page.locator("del").count() > 1, page.locator("ins").count() > 1) == (True,) * 3
    untroubled(page, watch, origin)


def test_keys_go_through_rows_and_groups_to_the_filter_and_explain_themselves(
    visit: tuple[Page, Watch], origin: str
) -> None:
    page, watch = visit
    page.goto(origin + "/view/groups")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tbody tr:nth-child(2) a.title")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("tbody tr:nth-child(1) a.title")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("j?")
    expect(page.locator("input[name=run]")).to_have_value("j?")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{origin}{GROUP.format(3)}?at=3")
    for key, number in (("ArrowRight", 2), ("k", 3), ("ArrowLeft", 4)):
        page.keyboard.press(key)
        page.wait_for_url(f"{origin}{GROUP.format(number)}?at={number}")
    untroubled(page, watch, origin)


def test_ids_links_texts_and_commands_are_copied(visit: tuple[Page, Watch], origin: str) -> None:
    page, watch = visit
    page.goto(origin + GROUP.format(2))
    group, copied = GROUP.format(2).rpartition("/")[2], []
    for name in ("Copy id", "Copy link", "Copy curl", "Copy text"):
        page.get_by_role("button", name=name).first.click()
        expect(page.get_by_role("status")).to_have_text("Copied")
        copied.append(page.evaluate("navigator.clipboard.readText()"))
    text = page.locator(".card .answer pre").first.inner_text()
    assert copied == [group, origin + GROUP.format(2), f"curl -fsS '{origin}/groups/{group}'", text]
    untroubled(page, watch, origin)


def test_the_filter_is_a_form_that_works_and_remembers_and_tables_sort(visit: tuple[Page, Watch], origin: str) -> None:
    page, watch = visit
    page.goto(origin + "/view/groups")
    outcome = page.locator("select[name=outcome]")
    page.locator("select[name=environment]").select_option("rlaif")
    outcome.select_option("unscored")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile(r"/view/groups\?environment=rlaif&.*&outcome=unscored&"))
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(outcome).to_have_value("unscored")
    page.get_by_role("link", name="clear").click()
    expect(page.locator("tbody tr")).to_have_count(7)
    page.goto(origin + "/view/judges")
    column = page.locator("tbody td:nth-child(2)")
    before = column.all_inner_texts()
    page.get_by_role("button", name="Model").click()
    rising = column.all_inner_texts()
    page.get_by_role("button", name="Model").click()
    assert (rising, column.all_inner_texts()) == (sorted(before), sorted(before, reverse=True))
    assert page.locator("th[aria-sort=descending]").count() == 1
    untroubled(page, watch, origin)


def test_without_javascript_everything_is_still_there(browser: Browser, origin: str) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(origin + GROUP.format(1))
        expect(page.locator(".card")).to_have_count(5)
        page.get_by_text("What judges read and answered").click()
        page.get_by_text("What the judge was shown").first.click()
        expect(page.get_by_text("You compare replies").first).to_be_visible()
