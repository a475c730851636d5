"""The first page, over the whole service and over what is bad for it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.domain.access import KeyBounds
from app.domain.budgets import BudgetForecast
from app.domain.runs import Run, RunProgress, RunState
from app.domain.tasks import Isolation, Protection
from app.http.viewer.pages import HomePages, create_viewer_router, warn_of_runs
from app.http.viewer.run_pages import RunRow, RunTotals
from app.http.web.api_keys import get_bounds
from app.service.gateway import EnvironmentEntry
from tests.support.outline import find_said, page
from tests.support.sample_views import JUDGES, NOON, MemoryViews, sample_groups, viewer_app
from tests.support.viewing import train

EVIL = '<script>document.title = "owned"</script>\u202e'


def test_the_first_page_says_what_needs_attention_as_text() -> None:
    views = MemoryViews(sample_groups())
    away = EnvironmentEntry(EVIL, "2", "unavailable", EVIL, ())
    weak = Isolation(protections=(Protection(against="network", held=False, by=EVIL),))
    home = HomePages(views, lambda: JUDGES, lambda: (away,), lambda: weak, lambda: 1e9)
    app = FastAPI()
    app.include_router(create_viewer_router(views, home=home))
    client = TestClient(app)
    outline, data = page(client.get("/")), client.get("/?format=json").json()
    told = [warning["code"] for warning in data["warnings"]]
    assert told == ["offline_judge", "judge", "environment", "isolation", "disk"]
    assert (outline.elements.count("script"), "⟨U+202E⟩" in outline.words()) == (1, True)
    assert "5 things need attention." in outline.words()
    assert "Environments 0 of 1 serve" in outline.words()


def test_addresses_of_the_list_that_was_here_still_lead_to_it() -> None:
    client = TestClient(viewer_app(sample_groups()), follow_redirects=False)
    moved = client.get("/?environment=rlaif&outcome=pending")
    assert (moved.status_code, moved.headers["location"]) == (307, "/view/groups?environment=rlaif&outcome=pending")


@pytest.mark.parametrize(
    ("bounds", "said", "health"),
    [
        (KeyBounds(), "No run yet, only single groups. Nothing needs attention.", "rlaif out"),
        (KeyBounds(runs=("mine-*",)), "No run yet, only single groups.", "rlaif not shown to this key"),
    ],
)
def test_a_bound_key_is_told_nothing_of_the_service(bounds: KeyBounds, said: str, health: str) -> None:
    views, app = MemoryViews(sample_groups()), FastAPI()
    home = HomePages(views, environments=lambda: (EnvironmentEntry("gsm8k", "1", "serving", "", ()),))
    app.include_router(create_viewer_router(views, judges=lambda: JUDGES, home=home))
    app.dependency_overrides[get_bounds] = lambda: bounds
    client = TestClient(app)
    judges = page(client.get("/view/judges")).words()
    assert (find_said(client.get("/").text), health in judges, "npc_arena needs none" in judges) == (said, True, True)


def row_of(state: RunState, left_usd: float | None) -> RunRow:
    run = Run(name="a", seed=0, created_at=NOON)
    budget = None
    if left_usd is not None:
        budget = BudgetForecast(usd=10.0, left_usd=left_usd, held_usd=0.0, groups=None, hours=None)
    totals = RunTotals("", 0, 0, 0, 0, None, None, None, None, None)
    return RunRow(run, RunProgress(state=state, since=None, outstanding=0), totals, (), budget)


def test_held_and_stalled_runs_and_small_budgets_need_attention() -> None:
    held, small = (
        "An alarm holds it: it is handed no tasks.",
        "${} of $10.00 are left. Groups that no longer fit get no score.",
    )
    rows: list[tuple[RunState, float | None]] = [
        ("new", None),
        ("new", 1.01),
        ("new", 1.0),
        ("held", None),
        ("held", 0.0),
    ]
    rows.append(("stalled", None))
    warnings = [list(warn_of_runs([row_of(*row)])) for row in rows]
    assert [[(one.code, one.text) for one in each] for each in warnings] == [
        [],
        [],
        [("budget", small.format("1.00"))],
        [("run", held)],
        [("run", held), ("budget", small.format("0.00"))],
        [("run", "It stopped sending groups.")],
    ]
    assert {(one.about, one.path) for each in warnings for one in each} == {("a", "/view/runs/a")}


async def test_a_group_may_be_of_a_run_that_is_not_there(client: httpx.AsyncClient, database: Path) -> None:
    await train(client, "kept", [("0.1", "0.3")])
    await train(client, "gone", [("0.1", "0.3")])
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM runs WHERE name = 'gone'")
    data = (await client.get("/?format=json")).raise_for_status().json()
    assert ([row["run"]["name"] for row in data["runs"]], len(data["groups"])) == (["kept"], 2)
