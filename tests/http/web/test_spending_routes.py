"""What requests of every route count against quotas is said in one table, which the documents show."""

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.http.web.api_keys import list_methods
from app.main.application import create_app
from app.settings import Settings
from tests.support.serving import ROOT
from tests.support.tables import read_table

TABLE: dict[str, Any] = read_table(__file__, "spending_routes.yaml", dict[str, Any])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    settings = Settings(database_url=f"sqlite:///{tmp_path_factory.mktemp('routes')}/keys.db", host="127.0.0.1")
    return TestClient(create_app(settings), base_url="http://localhost")


def test_every_route_of_the_service_is_in_the_table(served: TestClient) -> None:
    routes = served.app.router.routes  # type: ignore[attr-defined]
    found = {
        f"{method} {re.sub(r'^/envs/[a-z0-9_]+/', '/envs/{env}/', route.path)}"
        for route in routes
        for method in list_methods(route)
    }
    assert found == {*TABLE["spends"], *TABLE["free"]}


def test_the_documents_show_what_spends() -> None:
    text = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    section = text.partition("## Requests that spend")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`(?:GET|POST) .*) \| (.*) \|$", section, re.M)
    shown = {route: counted.split(", ") for routes, counted in rows for route in re.findall(r"`([^`]*)`", routes)}
    assert shown == TABLE["spends"]
