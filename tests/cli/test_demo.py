"""`atropos-envs demo` tells one story: a policy that learns, on the pages that it names at its end."""

import json
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.chromium import MISSING, chromium, chromium_path
from tests.support.commands import ended
from tests.support.gateways import Gateways

PLAN = ("--steps", "4", "--batch-size", "6", "--group-size", "3")
"""About the fewest groups after which run health notices the change."""


@pytest.fixture(scope="module")
def told(gateways: Gateways) -> dict[str, Any]:
    served = gateways.of(ATROPOS_ENVS_REQUEST_SECONDS="300")  # of its own: it has no world yet
    done = ended("demo", *PLAN, "--json", "--run", "learns", "--url", served.url)
    assert done.returncode == 0
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def read_page(address: str) -> dict[str, Any]:
    page: dict[str, Any] = httpx.get(httpx.URL(address).copy_merge_params({"format": "json"}), timeout=60).json()
    return page


def test_the_run_has_learnt_and_is_finished_with_the_planted_alarm_alone(told: dict[str, Any]) -> None:
    whole, of_npcs, *_ = map(read_page, told["worth_opening"])
    criteria = {one["name"]: one["curves"][0]["points"] for one in of_npcs["curves"] if "criterion:" in one["name"]}
    falling = [name for name, points in criteria.items() if points[0]["value"] >= points[-1]["value"]]
    means = [steps for figures in ("mean_rewards", "held_out") for steps in told[figures].values()]
    assert (
        (len(criteria), falling, [steps for steps in means if steps[0] >= steps[-1]]),
        (whole["progress"]["state"], sum(one["unscored"] for one in whole["totals"])),
        [alarm["series"] for alarm in whole["health"]["alarms"]],
        (len(told["alarms"]), "from step 3 on replies are longer" in told["planted"]),
    ) == ((8, [], []), ("finished", 0), ["length"], (1, True))


def test_its_links_lead_to_a_group_that_differs_and_a_comparison_that_decides(told: dict[str, Any]) -> None:
    group, compared, world = map(read_page, [*told["worth_opening"]][2:])
    difference = compared["compared"]["comparison"]["overall"]["difference"]
    assert (
        len({rollout["score"]["reward"] for rollout in group["group"]["group"]["rollouts"]}) > 1,
        compared["compared"]["tasks"] >= 12,
        difference["low"] > 0,
        world["world"]["name"],
    ) == (True, True, True, "reedgate")


def test_what_no_offline_judge_can_tell_apart_is_left_out(told: dict[str, Any]) -> None:
    assert (sorted(told["left_out"]), {"blackjack", "rlaif"} & set(told["mean_rewards"])) == (
        ["blackjack", "rlaif"],
        set(),
    )


@pytest.mark.browser
@pytest.mark.skipif(chromium_path() is None, reason=MISSING)
def test_a_lead_sees_in_three_clicks_which_step_is_better_and_why(told: dict[str, Any]) -> None:
    home = httpx.URL(next(iter(told["worth_opening"]))).join("/")
    with chromium() as browser, browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.goto(str(home))
        page.get_by_role("link", name="learns", exact=True).first.click()
        expect(page.locator("#says")).to_contain_text("Learns:")
        page.get_by_role("link", name="Compare its first and last step").click()
        expect(page.locator("#says")).to_contain_text("Step 3 is better: +")
        page.locator(".reward").first.click()
        expect(page.locator("#completion-1")).to_be_visible()
