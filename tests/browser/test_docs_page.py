"""Swagger UI in a real browser: offline, under a strict policy, and its button works."""

import pytest
from fastapi import APIRouter, FastAPI
from playwright.sync_api import Browser, Page, expect
from pydantic import Field

from app.domain.access import compute_key_digest
from app.domain.values import FiniteNumber, Frozen
from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.http.web.openapi import document_problems, install_docs
from app.http.web.routes import JsonRoute
from tests.support.chromium import served, strangers, violations, watched

pytestmark = pytest.mark.browser

KEY = "gw_for-this-test-only"


class Answer(Frozen):
    text: str = Field(examples=["Well met."])
    weight: FiniteNumber | None = None


def small_app(ring: KeyRing) -> FastAPI:
    app = FastAPI(title="Small", docs_url=None, redoc_url=None)
    router = APIRouter(route_class=JsonRoute, tags=["small"])

    @router.post("/score", responses=document_problems(401, 422), openapi_extra=EXAMPLE)
    async def score(answer: Answer) -> Answer:
        return answer

    app.include_router(router)
    install_docs(app)
    install_middleware(app, MiddlewareOptions(ring))
    return app


EXAMPLE = {"requestBody": {"content": {"application/json": {"example": {"text": "From the example.", "weight": 0.5}}}}}


def execute(page: Page) -> None:
    """Groups are folded until they are opened, and there is a box that filters them."""
    expect(page.locator(".operation-filter-input")).to_be_visible()
    expect(page.locator(".opblock")).to_have_count(0)
    page.locator("#operations-tag-small").click()
    page.locator("#operations-small-score_score_post .opblock-summary-control").click()
    page.get_by_role("button", name="Execute").click()


def test_the_example_runs_with_one_press_and_nothing_else_can_leave_the_machine(browser: Browser) -> None:
    ring = KeyRing([compute_key_digest(KEY)], anonymous=False)
    with (
        served(small_app(ring)) as origin,
        browser.new_context(extra_http_headers={"Authorization": f"Bearer {KEY}"}) as context,
    ):
        page, watch = watched(context)
        page.goto(f"{origin}/docs")
        expect(page.locator(".info .title")).to_contain_text("Small")
        execute(page)
        live = page.locator(".live-responses-table .response")
        expect(live.locator(".response-col_status")).to_contain_text("200")
        expect(live.locator(".highlight-code").first).to_contain_text("From the example.")
        page.get_by_text("application/problem+json").first.wait_for(state="attached")
        assert (strangers(watch, origin), violations(page), watch.complaints) == ([], [], [])
        assert {f"{origin}/openapi.json", f"{origin}/docs/assets/swagger-ui-bundle.js"} <= set(watch.requests)
        ran = page.evaluate(
            """async () => {
              const inline = document.createElement("script");
              inline.textContent = "window.ran = true";
              document.body.append(inline);
              const elsewhere = await fetch("http://127.0.0.1:9/").then(() => true, () => false);
              return [window.ran === true, elsewhere];
            }"""
        )
        expected = [[False, False], ["script-src-elem inline", "connect-src http://127.0.0.1:9/"]]
        assert [ran, violations(page)] == expected
