"""The first page, over the whole service and over what is bad for it."""

from fastapi import FastAPI
from starlette.testclient import TestClient

from app.domain.programs import Isolation, Protection
from app.http.viewer.home_pages import HomePages
from app.http.viewer.pages import create_viewer_router
from app.service.overview import EnvironmentEntry
from tests.support.outline import page
from tests.support.sample_judges import JUDGES
from tests.support.sample_views import MemoryViews, sample_groups, viewer_app

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
    assert "0 of 1 environments serve; 5 warnings." in outline.words()


def test_addresses_of_the_list_that_was_here_still_lead_to_it() -> None:
    client = TestClient(viewer_app(sample_groups()), follow_redirects=False)
    moved = client.get("/?environment=rlaif&outcome=pending")
    assert (moved.status_code, moved.headers["location"]) == (307, "/view/groups?environment=rlaif&outcome=pending")
