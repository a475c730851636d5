"""An author's way through a real browser: an event and a sheet are corrected, and the next tasks are made from them."""

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import strangers, violations, watched
from tests.support.databases import Postgres
from tests.support.gateways import Gateways
from tests.support.sample_texts import HOSTILE_JSON
from tests.support.serving import serving

pytestmark = pytest.mark.browser

WORLD, HERO = "inkwell", "mosswether"
EVENT = {"id": "owl", "time": "1312-04-03T09:15:00Z", "text": "An owl sat on the gate.", "importance": 9}
ASKED = {"batch_size": 1, "select": {"character": [HERO]}, "params": {"world": WORLD, "scenes": "by_hand"}}
MARKER = "keeps a tally of every owl"


def correct_event(page: Page, url: str) -> None:
    page.goto(f"{url}/view/worlds/{WORLD}")
    page.get_by_text("owl", exact=True).click()
    page.get_by_role("link", name="Correct").filter(visible=True).click()
    text = page.get_by_label("Text (YAML)")
    text.fill(text.input_value().replace("An owl", "A heron"))
    expect(page.locator(".changes")).to_contain_text("A heron sat on the gate.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_have_text("It is saved.")


def test_what_is_corrected_in_the_browser_is_in_the_next_prompt(browser: Browser, gateways: Gateways) -> None:
    gateway = gateways.of()
    events = {"events": [EVENT, {**EVENT, "id": "hostile", "text": HOSTILE_JSON, "importance": 0}]}
    httpx.post(f"{gateway.url}/worlds/{WORLD}/events", json=events, timeout=120).raise_for_status()
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page, watch = watched(context)
        correct_event(page, gateway.url)
        text = page.get_by_label("Text (YAML)")

        page.goto(f"{gateway.url}/view/characters/{HERO}")
        page.get_by_role("link", name="Edit").click()
        before = text.input_value()
        text.fill(before.replace("schema_version: 1", "schema_version: one"))
        expect(page.locator(".findings")).to_contain_text("meta.schema_version")
        text.fill(re.sub(r"(?m)^  traits: \[", f"  traits: [{MARKER}, ", before))
        expect(page.locator(".conversation")).to_contain_text(MARKER)
        page.get_by_label("Note").fill(HOSTILE_JSON)
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").first).to_have_text("Revision 1 is in force.")
        note = page.get_by_role("region", name="Revisions").locator("tbody tr").first.inner_text()
        task = httpx.post(f"{gateway.url}/envs/npc_arena/next-batch", json=ASKED, timeout=120).json()["tasks"][0]
        page.get_by_role("button", name="Take back the folder's").click()
        expect(page.get_by_role("status").first).to_have_text("Revision 2 is in force.")
        prompt = task["messages"][0]["content"]
        assert (MARKER in prompt, "A heron sat on the gate." in prompt) == (True, True)
        assert (text.input_value() == before, "<script" in note or "<img" in note) == (True, True)
        assert ("owned" in page.title(), strangers(watch, gateway.url), violations(page)) == (False, [], [])
        assert watch.complaints == []


class Replica:
    """A gateway as a trainer sees it."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def send(self, method: str, path: str, body: object = None) -> Any:
        return self._client.request(method, path, json=body).raise_for_status().json()

    def draw(self, count: int) -> list[Any]:
        """Tasks. The last batch of an epoch is short while some of its tasks are not answered."""
        body = {**ASKED, "batch_size": count, "run": "trainer"}
        tasks: list[Any] = self.send("POST", "/envs/npc_arena/next-batch", body)["tasks"]
        return tasks

    def answer(self, tasks: list[Any]) -> None:
        said = {"completions": [{"text": "Mind the moss."}]}
        groups = [{"task_id": task["task_id"], "lease_id": task["lease_id"], **said} for task in tasks]
        self.send("POST", "/envs/npc_arena/score", {"groups": groups, "run": "trainer"})

    def await_sheet(self, revision: int) -> None:
        """Until it knows the key and serves this revision, for which it looks every two seconds."""
        end = time.monotonic() + 30
        while self._client.get(f"/characters/{HERO}/text").json().get("revision") != revision:
            assert time.monotonic() < end
            time.sleep(0.05)


def _tell(tasks: list[Any]) -> list[tuple[bool, bool]]:
    """Whether each was made from the corrected sheet, and from the corrected event."""
    prompts = [task["messages"][0]["content"] for task in tasks]
    return [(MARKER in prompt, "A heron" in prompt) for prompt in prompts]


def test_another_replica_uses_what_is_corrected_in_its_next_epoch(
    browser: Browser, postgres: Postgres, tmp_path: Path
) -> None:
    secret = "gw_of-the-settings"
    settings = {"ATROPOS_ENVS_DATABASE_URL": postgres.migrated(), "ATROPOS_ENVS_API_KEY": secret}
    with contextlib.ExitStack() as stack:
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        one, other = [stack.enter_context(serving(folder, settings=settings, migrated=False)) for folder in folders]
        context = stack.enter_context(browser.new_context(viewport={"width": 1280, "height": 800}))

        def enter(url: str, key: str) -> Replica:
            headers = {"Authorization": f"Bearer {key}"}
            return Replica(stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=120)))

        near, far = enter(one.url, secret), enter(other.url, secret)
        near.send("POST", f"/worlds/{WORLD}/events", {"events": [EVENT]})
        made = near.send("POST", "/admin/keys", {"name": "ada", "scopes": ["read", "author"]})
        begun = far.draw(1)

        context.set_extra_http_headers({"Authorization": f"Bearer {made['secret']}"})
        page, watch = watched(context)
        correct_event(page, one.url)
        rows = page.get_by_role("region", name="Revisions").locator("tbody tr")
        page.goto(f"{one.url}/view/characters/{HERO}/edit")
        text = page.get_by_label("Text (YAML)")
        text.fill(re.sub(r"(?m)^  traits: \[", f"  traits: [{MARKER}, ", text.input_value()))
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").first).to_have_text("Revision 1 is in force.")

        enter(other.url, made["secret"]).await_sheet(1)
        page.goto(f"{other.url}/view/worlds/{WORLD}/events/owl/edit")
        written = [row.split("\t") for row in rows.all_inner_texts()]
        changed = page.get_by_role("region", name="What revision 2 changed").locator("del, ins").all_inner_texts()
        rest = far.draw(400)
        far.answer([*begun, *rest])
        told = [_tell(tasks) for tasks in (begun, far.draw(1))]
        assert (told, {sheet for sheet, _ in _tell(rest)}) == ([[(False, False)], [(True, True)]], {False})
        assert [(row[0], row[2]) for row in written] == [("2", "ada"), ("1", "settings")]
        assert changed == ["An", "A", "owl", "heron"]
        others = [url for url in strangers(watch, one.url) if not url.startswith(f"{other.url}/")]
        assert (others, watch.complaints) == ([], [])
