"""The whole service in a browser: every example runs with one press, and the pages show what came of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from app.main.components import discover
from tests.support.chromium import strangers, violations, watched
from tests.support.serving import serving

pytestmark = pytest.mark.browser


def _execute(page: Page, environment: str, verb: str) -> str:
    """The status that Swagger UI shows after one press. The block is closed again: each open one slows the next."""
    operation = f"{verb}_envs_{environment}_{verb}_post"
    block = page.locator(f"#operations-{environment}-{operation}")
    if not block.is_visible():  # groups are folded
        page.locator(f"#operations-tag-{environment}").click()
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Execute").click()
    status = block.locator(".live-responses-table .response .response-col_status").first
    expect(status).to_be_visible(timeout=60_000)
    told = status.inner_text().split()[0]
    block.locator(".opblock-summary-control").click()
    return told


def _verbs(names: Sequence[str]) -> list[tuple[str, str]]:
    found = discover()
    verbs = [(name, verb) for name in names for verb in ("next_batch", "score")]
    return verbs + [(name, "step") for name in names if found[name].multi_turn]


SOME = ("blackjack", "npc_arena")
"""One that is played, one that is judged."""


@pytest.mark.parametrize(
    "names",
    [pytest.param(SOME, id="some"), pytest.param(tuple(sorted(discover())), id="all", marks=pytest.mark.slow)],
)
def test_every_example_works_and_its_group_can_be_looked_at(
    browser: Browser, tmp_path: Path, names: Sequence[str]
) -> None:
    verbs = _verbs(names)
    with serving(tmp_path) as gateway, browser.new_context() as context:
        page, watch = watched(context)
        page.goto(f"{gateway.url}/docs")
        statuses = {verb: _execute(page, *verb) for verb in verbs}
        page.goto(f"{gateway.url}/view/groups")
        shown = page.locator("tbody tr").count()
        page.locator("tbody tr a").first.click()
        expect(page.locator("h1")).to_be_visible()
        assert (strangers(watch, gateway.url), violations(page), watch.complaints) == ([], [], [])
    assert statuses == dict.fromkeys(verbs, "200")
    assert shown == len(names)


def test_a_run_can_be_looked_at_on_a_phone_and_its_curve_alone(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as gateway, browser.new_context(viewport={"width": 390, "height": 800}) as context:
        page, watch = watched(context)
        for step in range(3):
            asked = {"run": "a", "batch_size": 2, "policy": {"step": step}}
            tasks = page.request.post(f"{gateway.url}/envs/gsm8k/next-batch", data=asked).json()["tasks"]
            groups = [
                {
                    "task_id": task["task_id"],
                    "lease_id": task["lease_id"],
                    "completions": [{"text": "7"}, {"text": "8"}],
                }
                for task in tasks
            ]
            body = {"run": "a", "groups": groups, "policy": {"model": "m", "step": step}}
            assert page.request.post(f"{gateway.url}/envs/gsm8k/score", data=body).status == 200
        page.goto(f"{gateway.url}/view/runs")
        page.get_by_role("link", name="a", exact=True).click()
        expect(page.get_by_role("img", name="Reward.")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("link", name="Reward", exact=True).click()
        page.wait_for_url("**/view/runs/a?chart=reward")
        assert page.locator("figure").count() == 1
        assert (strangers(watch, gateway.url), violations(page), watch.complaints) == ([], [], [])
