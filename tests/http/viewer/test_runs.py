"""Pages of runs, over the whole service: states, curves, alarms, changes of pins, several runs at once."""

import math
import random
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import pytest

from app.domain.rollups import Rollup, RollupKey, add_up, merge_measures
from app.domain.values import Z_95
from app.features.health.store import RunHealthStore
from app.http.viewer.run_pages import MOST_POINTS, SeriesSource, list_changes, measure_curves, tell_learning
from app.http.viewer.sentences import average_steps
from tests.support.outline import find_said
from tests.support.playground import World
from tests.support.store_cases import alarm, opened
from tests.support.tables import read_table
from tests.support.viewing import look, train

EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(2)>"


def find_curve(data: dict[str, Any], name: str) -> list[tuple[str, list[tuple[int, float]]]]:
    (found,) = [each for each in data["curves"] if each["name"] == name]
    return [
        (curve["name"], [(point["step"], round(point["value"], 3)) for point in curve["points"]])
        for curve in found["curves"]
    ]


STEPS = [("0.1", "0.3"), ("0.2", "0.6"), ("0.9", "0.7")]


async def test_a_run_shows_its_curves_and_their_numbers(client: httpx.AsyncClient) -> None:
    await train(client, "a", STEPS)
    page = await look(client, "/view/runs/a")
    data = (await client.get("/view/runs/a?format=json")).json()
    same = (await client.get("/view/runs/a", headers={"accept": "application/json"})).json()
    titles = re.findall(r"(Reward|Without a score|Set to 0 by a gate|Length in characters|Lag in steps)", page.words())
    assert titles[:5] == ["Reward", "Without a score", "Set to 0 by a gate", "Length in characters", "Lag in steps"]
    assert find_curve(data, "reward") == [("a", [(0, 0.2), (1, 0.4), (2, 0.8)])]
    assert find_curve(data, "unscored") == [("a", [(0, 0.0), (1, 0.0), (2, 0.0)])]
    assert (data["progress"]["state"], data["totals"][0]["groups"], same) == ("training", 3, data)
    assert "a: from 0.20 at 0 to 0.80 at 2" in str(page.attributes)
    alone = await look(client, "/view/runs/a?chart=unscored")
    assert ("0 throughout" in page.words(), "0 throughout" in alone.words()) == (True, False)


@pytest.mark.parametrize(("path", "said"), read_table(__file__, "says.yaml", dict[str, str]).items())
async def test_each_page_says_one_thing(client: httpx.AsyncClient, path: str, said: str) -> None:
    await train(client, "a", [("0.1", "0.9")] * 3)
    (newest,) = (await client.get("/groups?limit=1")).json()["groups"]
    page = await client.get(path.format(group=newest["group_id"]))
    assert (page.status_code, find_said(page.text)) == (200, said)


async def test_runs_are_listed_with_their_curves_by_environment_too(client: httpx.AsyncClient) -> None:
    await train(client, "a", STEPS)
    await train(client, "a", STEPS[:1], "arena")
    await train(client, "b", STEPS[:2])
    lists = {
        query: [
            (row["run"]["name"], row["totals"]["environment"], [round(one["value"], 2) for one in row["curve"]])
            for row in (await client.get(f"/view/runs?format=json&{query}")).json()["runs"]
        ]
        for query in ("", "by=environment", "environment=arena")
    }
    toy, arena = [0.2, 0.4, 0.8], ("a", "arena", lists["environment=arena"][0][2])
    assert lists == {
        "": [("a", "", [round((0.2 + arena[2][0]) / 2, 2), *toy[1:]]), ("b", "", toy[:2])],
        "by=environment": [arena, ("a", "toy", toy), ("b", "toy", toy[:2])],
        "environment=arena": [arena],
    }
    page = await look(client, "/view/runs")
    assert "0.40 at step 1" in str(page.attributes)


async def test_several_runs_and_parts_lie_over_each_other(client: httpx.AsyncClient) -> None:
    await train(client, "a", STEPS)
    await train(client, "a", STEPS[:1], "arena")
    await train(client, "b", STEPS[:2])
    data = (await client.get("/view/runs/a?with=b&with=nobody&with=a&environment=toy&format=json")).json()
    assert find_curve(data, "reward") == [
        ("a", [(0, 0.2), (1, 0.4), (2, 0.8)]),
        ("b", [(0, 0.2), (1, 0.4)]),
    ]
    parts = (await client.get("/view/runs/a?by=environment&format=json")).json()
    assert [name for name, _ in find_curve(parts, "reward")] == ["arena", "toy"]
    both = (await client.get("/view/runs/a?by=environment&with=b&format=json")).json()
    assert [name for name, _ in find_curve(both, "reward")] == ["a: arena", "a: toy", "b: toy"]
    page = await look(client, "/view/runs/a?with=b&chart=reward")
    assert [link for link in page.links() if "chart=" in link or "with=" in link] != []
    assert page.elements.count("figure") == 1
    listed = (await client.get("/view/runs?format=json")).json()
    assert [(row["run"]["name"], row["environments"]) for row in listed["runs"]] == [
        ("a", ["arena", "toy"]),
        ("b", ["toy"]),
    ]
    assert {"/view/runs/a", "/view/runs/b"} <= set((await look(client, "/view/runs")).links())


async def test_alarms_stand_in_the_curve_that_they_are_about(client: httpx.AsyncClient, database: Path) -> None:
    await train(client, "a", STEPS)
    raised = alarm().model_copy(update={"series": "length", "since_group": 2, "noticed_group": 3, "evidence": EVIL})
    async with opened(f"sqlite:///{database}") as store:
        await store.part(RunHealthStore).add_alarm("a", raised, None)
    page = await look(client, "/view/runs/a")
    assert "A1 Replies have been about 11 % longer since about group 2. Evidence </title><script>" in page.words()
    assert (page.elements.count("script"), page.elements.count("img")) == (1, 1)  # ours, and the sign of the house
    rects = [value for tag, name, value in page.attributes if (tag, name) == ("rect", "class")]
    assert rects.count("stretch alarm") == 1
    assert "characters of a reply – – +11 % 5 % 6.0 4.8 Not measured yet: 11" in page.words()


async def test_a_run_that_is_silent_is_stalled_and_then_over(client: httpx.AsyncClient, world: World) -> None:
    await train(client, "a", STEPS)
    states = []
    for minutes in (1, 2, 58):
        world.moment += timedelta(minutes=minutes)
        states.append((await client.get("/view/runs/a?format=json")).json()["progress"]["state"])
        assert states[-1] in (await look(client, "/view/runs")).words()
    assert states == ["training", "stalled", "finished"]


async def test_a_run_that_is_not_there_is_a_page_and_a_problem(client: httpx.AsyncClient) -> None:
    for name in ("nobody", "%3Cscript%3E", "a" * 300):
        page, twin = [await client.get(f"/view/runs/{name}{query}") for query in ("", "?format=json")]
        assert (page.status_code, "There is no such run" in page.text, "<script>" in page.text) == (
            404,
            True,
            False,
        )
        assert (twin.status_code, twin.headers["content-type"]) == (404, "application/problem+json")
    empty = await look(client, "/view/runs")
    assert "No run yet." in empty.words()


def rollup(step: int | None, values: Sequence[float] = (), **more: int) -> Rollup:
    key = RollupKey("step", "toy", "a", "train", step)
    return Rollup(key, {**({"reward": add_up(values)} if values else {}), "rollouts": 2, "scored": 2, **more})


def test_long_runs_are_taken_together_and_stepless_groups_left_out() -> None:
    rollups = [rollup(None, (1.0,)), *(rollup(step, (step / 1000,)) for step in range(1000))]
    (reward,) = [one for rule, one in measure_curves([SeriesSource("a", rollups)]) if rule.name == "reward"]
    points = reward.curves[0].points
    assert (len(points), points[0].step, points[0].last, points[-1].last) == (MOST_POINTS, 0, 9, 999)
    assert points[0].value == pytest.approx(0.0045)


def learn(luck: random.Random, steps: int, groups: int) -> list[Rollup]:
    """A curve that rises by .1 a step. Groups differ by .1 and replies of a group by .2."""
    rollups = []
    for step in range(steps):
        levels = [luck.gauss(step / 10, 0.1) for _ in range(groups)]
        parts = [{"reward": add_up([luck.gauss(level, 0.2) for _ in range(6)])} for level in levels]
        rollups.append(Rollup(RollupKey("step", "toy", "a", "train", step), merge_measures(parts)))
    return rollups


@pytest.mark.parametrize("groups", [2, 4, 8, 32])
def test_bands_cover_a_steady_rise_and_are_no_wider_than_its_noise(groups: int) -> None:
    """Bands that took the rise for noise would be several times as wide."""
    luck, curves, steps = random.Random(groups), 300, 8
    covered, widths = 0, []
    for _ in range(curves):
        rollups = learn(luck, steps, groups)
        (reward,) = [one for rule, one in measure_curves([SeriesSource("a", rollups)]) if rule.name == "reward"]
        bands = [(point.low or 0.0, point.high or 0.0) for point in reward.curves[0].points]
        covered += sum(low <= step / 10 <= high for step, (low, high) in enumerate(bands))
        widths += [high - low for low, high in bands]
    share, wide = covered / (curves * steps), fmean(widths) / (2 * Z_95 * math.sqrt((0.01 + 0.04 / 6) / groups))
    # Four standard errors of a binomial share, and .005 since the steps of a curve borrow from each other.
    assert share == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / (curves * steps)) + 0.005)
    assert 1.0 <= wide <= 1.3


def test_environments_whose_share_of_a_step_is_fixed_add_no_noise() -> None:
    """A group of one environment alone has no band."""
    keys = [RollupKey("step", environment, "a", "train", 0) for environment in ("easy", "hard")]
    rollups = [
        Rollup(key, merge_measures([{"reward": add_up([level])}] * 4)) for key, level in zip(keys, (0, 1), strict=True)
    ]
    single = [Rollup(keys[0], {"reward": add_up([0.5, 1.0])})]
    bands = [
        [(point.value, point.low, point.high) for curve in one.curves for point in curve.points]
        for rollups in (rollups, single)
        for rule, one in measure_curves([SeriesSource("a", rollups)])
        if rule.name == "reward"
    ]
    assert bands == [[(0.5, 0.5, 0.5)], [(0.75, None, None)]]


def test_changes_of_pins_are_lines() -> None:
    changed = {"group_flag:scoring_changed": 1}
    rollups = [rollup(step, (0.5,), **(changed if step in (3, 4) else {})) for step in range(7)]
    assert [(mark.x, mark.sign) for mark in list_changes(rollups)] == [(3, "≠"), (5, "=")]


@pytest.mark.parametrize(
    ("steps", "environment", "said", "drawn"),
    read_table(__file__, "trends.yaml", list[tuple[list[str], str | None, str, int]]),
)
def test_a_trend_is_of_environments_at_both_ends(
    steps: list[str], environment: str | None, said: str, drawn: int
) -> None:
    """`a0` is a step's mean of the environment `a`, of two groups that earned alike."""
    rollups = [
        Rollup(RollupKey("step", one[0], "r", "train", step), merge_measures([{"reward": add_up([float(one[1])])}] * 2))
        for step, words in enumerate(steps)
        for one in words.split()
    ]
    assert (tell_learning(rollups, environment), len(average_steps(rollups))) == (said, drawn)
