"""The pages, as HTML over an in-memory store."""

import re
import weakref
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from app.domain.groups import TaskPrompt
from app.domain.runs import Policy
from app.domain.scores import Score
from app.domain.tasks import Completion, Message
from app.http.viewer.pages import create_viewer_router
from app.http.viewer.rendering import DOCS, Renderer
from app.http.web.problems import install_problems
from tests.support.outline import Outline, page
from tests.support.sample_views import (
    MemoryViews,
    group_of,
    gsm8k_group,
    npc_group,
    pending_group,
    sample_groups,
    viewer_app,
)
from tests.support.tables import read_table

UNREAD = read_table(__file__, "unread.yaml", tuple[str, ...])
SAID = read_table(__file__, "said.yaml", dict[str, Any])


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(viewer_app(sample_groups()))


def path_of(number: int) -> str:
    return f"/view/groups/group_{number:032x}"


def test_the_newest_group_comes_first(client: TestClient) -> None:
    outline = page(client.get("/view/groups"))
    groups = [link.partition("?")[0] for link in outline.links() if link.startswith("/view/groups/")]
    assert groups == [path_of(number) for number in (7, 6, 5, 4, 3, 2, 1)]


@pytest.mark.parametrize(("step", "told"), [(None, []), (4, ["0 steps"]), (3, ["1 step"]), (9, ["-5 steps"])])
def test_a_group_shows_its_lag_where_that_is_known(step: int | None, told: list[str]) -> None:
    detail = gsm8k_group(1)
    policy = Policy(model="m", step=4)
    group = detail.group.model_copy(update={"policy": policy, "hand_out_step": step})
    shown = viewer_app([detail.model_copy(update={"group": group})])
    words = page(TestClient(shown).get(path_of(1))).words()
    assert re.findall(r"Lag (\S+ steps?)", words) == told


@pytest.mark.parametrize(("query", "numbers"), read_table(__file__, "filters.yaml", list[tuple[str, list[int]]]))
def test_filters_narrow_the_list(client: TestClient, query: str, numbers: list[int]) -> None:
    outline = page(client.get(f"/view/groups?{query}"))
    groups = [link.partition("?")[0] for link in outline.links() if link.startswith("/view/groups/")]
    assert groups == [path_of(number) for number in numbers]


def test_words_of_a_filter_that_mean_nothing_are_named_and_kept(client: TestClient) -> None:
    query = "environment=npc_arena&label=hob&text=%22%2A&min_mean=0.1&max_mean=x&until=2999-01-01&since=y&outcome=z"
    outline = page(client.get(f"/view/groups?{query}"))
    assert [said for said in UNREAD if said not in outline.words()] == []
    assert {"label": "hob", "text": '"*', "min_mean": "0.1", "max_mean": "x"}.items() <= dict(outline.inputs).items()


@pytest.mark.parametrize(("query", "said"), read_table(__file__, "unknown_names.yaml", dict[str, str]).items())
def test_names_that_there_are_not_are_told_with_those_that_there_are(client: TestClient, query: str, said: str) -> None:
    assert said in page(client.get(query)).words()


def test_the_twin_of_a_page_refuses_a_parameter_that_it_does_not_know(client: TestClient) -> None:
    answers = [client.get(f"/view/judges?format=json{more}") for more in ("", "&limit=5")]
    assert [(one.status_code, one.json().get("detail")) for one in answers] == [
        (200, None),
        (422, "`query.limit`: unknown parameter; known are `format`"),
    ]


@pytest.mark.parametrize(
    "path",
    ["/view/groups?run=a\u202e&label=%00&text=b%0Cc&min_mean=x\u200b"],
)
def test_a_filter_that_nobody_changed_is_sent_as_it_came(client: TestClient, path: str) -> None:
    once = client.get(path)
    again = client.get(path.partition("?")[0], params=httpx.QueryParams(tuple(page(once).inputs)))
    assert ("was." in str(again.url), again.text) == (True, once.text)


def test_a_filter_that_somebody_changed_is_what_they_wrote(client: TestClient) -> None:
    sent = {"run": "⟨U+202E⟩", "was.run": "a\u202e", "label": "new\u202e", "was.label": "b"}
    assert dict(page(client.get("/view/groups", params=sent)).inputs)["was.label"] == "new\u202e"


def test_a_query_that_makes_no_sense_is_422(client: TestClient) -> None:
    queries = ("before=x", "before=-1", f"before={2**60}", f"run={'x' * 101}", "at=NaN&before=1e9")
    assert {client.get(f"/?{query}").status_code for query in queries} == {422}


def test_older_pages_keep_the_filter() -> None:
    client = TestClient(viewer_app([gsm8k_group(number) for number in range(1, 121)]))
    pages = ["/?run=sums"]
    sizes = []
    while pages:
        outline = page(client.get(pages.pop()))
        sizes.append(len([link for link in outline.links() if link.startswith("/view/groups/")]))
        pages += [link for link in outline.links() if "before=" in link]
    assert sizes == [50, 50, 20]


def test_an_empty_store_says_how_to_begin() -> None:
    html = page(TestClient(viewer_app([]), base_url="http://gateway.example:8000").get("/")).words()
    assert [html.count(f"http://gateway.example:8000{path}") for path in ("/envs", "/envs/npc_arena/")] == [3, 2]
    assert "Nothing has been scored yet" in html


def test_a_group_shows_what_it_earned_and_why(client: TestClient) -> None:
    words = page(client.get(path_of(1))).words()
    for expected in SAID["group"]:
        assert expected in words


def test_what_has_no_score_is_never_shown_as_zero() -> None:
    scores = [Score.unscored("budget"), Score.pending()]
    prompt = TaskPrompt(messages=(Message(role="user", content="?"),))
    detail = group_of(1, "rlaif", prompt, [(Completion(text="a"), score) for score in scores], outcome="pending")
    words = page(TestClient(viewer_app([detail])).get(path_of(1))).words()
    assert ("no score: budget" in words, "not scored yet" in words, "0.0" in words) == (True, True, False)


def test_scorings_stand_side_by_side_with_what_they_change(client: TestClient) -> None:
    words = page(client.get(path_of(6))).words()
    for expected in SAID["scorings"]:
        assert expected in words
    headings = [
        words.index(f"{name} {judge}", words.index("Judgements"))
        for name, judge in (("original", "careful"), ("scoring 1", "strict"), ("scoring 2", "offline"))
    ]
    assert headings == sorted(headings)


def test_equal_completions_stand_together() -> None:
    prompt = TaskPrompt(messages=(Message(role="user", content="?"),))
    texts = ("yes", "no", "yes", "yes")
    rollouts = [(Completion(text=text), Score.exact(correct=text == "yes")) for text in texts]
    outline = page(TestClient(viewer_app([group_of(1, "gsm8k", prompt, rollouts)])).get(path_of(1)))
    ids = [value for _, name, value in outline.attributes if name == "id" and value.startswith(("completion-", "why-"))]
    assert ids == ["completion-1", "completion-3", "completion-4", "completion-2", "why-1", "why-2"]
    assert "reply 1, 3, 4" in outline.words()


def test_traces_of_agents_are_wide(client: TestClient) -> None:
    wide = [value for _, name, value in page(client.get(path_of(7))).attributes if name == "class" and "cards" in value]
    narrow = [
        value for _, name, value in page(client.get(path_of(1))).attributes if name == "class" and "cards" in value
    ]
    assert (wide, narrow) == (["cards traces"], ["cards"])


def test_every_page_has_a_twin_in_json(client: TestClient) -> None:
    names = {
        "/": ["environments", "groups", "judges", "runs", "warnings"],
        "/view/groups": ["groups", "looked_at", "matched", "next_before"],
        "/view/judges": ["judges"],
        "/view/judges/careful": ["judge", "sources"],
        path_of(1): ["compared", "group", "newer", "older", "why"],
        path_of(5): ["compared", "group", "newer", "older", "why"],
    }
    twins = {path: client.get(f"{path}?format=json") for path in names}
    asked = {path: client.get(path, headers={"accept": "application/json, text/html;q=0.5"}) for path in names}
    assert {path: sorted(twin.json()) for path, twin in twins.items()} == names
    assert {path: twin.json() for path, twin in twins.items()} == {path: twin.json() for path, twin in asked.items()}
    told = {(one.status_code, one.headers["content-type"], one.headers["vary"]) for one in twins.values()}
    browser = client.get("/", headers={"accept": "text/html,application/xhtml+xml,application/json;q=0.9"})
    absent = client.get("/view/groups/nope?format=json")
    assert told == {(200, "application/json", "Accept")}
    assert browser.headers["content-type"] == "text/html; charset=utf-8"
    assert (absent.status_code, absent.headers["content-type"]) == (404, "application/problem+json")


def test_white_space_of_a_completion_is_kept() -> None:
    text = "\n\n  two before\n\tand after \n"
    prompt = TaskPrompt(messages=(Message(role="user", content="?"),))
    client = TestClient(viewer_app([group_of(1, "rlaif", prompt, [(Completion(text=text), Score.pending())])]))
    (shown,) = re.findall(
        r'<div class="answer">\s*<pre class="text prose" dir="auto">\n(.*?)</pre>', client.get(path_of(1)).text, re.S
    )
    assert shown == text


@pytest.mark.parametrize(
    ("path", "newer", "older"), read_table(__file__, "neighbours.yaml", list[tuple[str, str | None, str | None]])
)
def test_neighbours_are_those_of_the_listing(
    client: TestClient, path: str, newer: str | None, older: str | None
) -> None:
    html = client.get(path).text
    found = dict(re.findall(r'<a rel="(prev|next)" href="([^"?]+)', html))
    assert (found.get("prev"), found.get("next")) == (newer, older)


def test_links_keep_the_filter(client: TestClient) -> None:
    outline = page(client.get(f"{path_of(1)}?at=1&environment=npc_arena&outcome=scored"))
    assert f"{path_of(6)}?environment=npc_arena&outcome=scored&at=6" in outline.links()
    assert "/view/groups?environment=npc_arena&outcome=scored" in outline.links()


def test_a_group_that_is_not_there_is_a_page_too(client: TestClient) -> None:
    for name in ("nope", f"group_{99:032x}", "group_%00", "%ff%fe", "x" * 5000):
        assert "There is no such group" in page(client.get(f"/view/groups/{name}"), status=404).words()


@pytest.mark.parametrize(("sent", "led"), read_table(__file__, "moved_statistics.yaml", list[tuple[str, str]]))
def test_statistics_have_moved_to_the_pages_of_runs(client: TestClient, sent: str, led: str) -> None:
    answer = client.get(f"/view/stats{sent}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, led)


def test_judges_stand_with_their_health_and_spending(client: TestClient) -> None:
    words = page(client.get("/view/judges")).words()
    for expected in SAID["judges"]:
        assert expected in words


JUDGE_PAGES = read_table(__file__, "judge_pages.yaml", list[dict[str, Any]])


@pytest.mark.parametrize("told", JUDGE_PAGES, ids=lambda told: told["path"])
def test_what_is_known_of_a_judge_stands_side_by_side(client: TestClient, told: dict[str, Any]) -> None:
    words = page(client.get(told["path"])).words()
    places = [words.find(one) for one in (told["says"], *told["words"])]
    assert (-1 not in places, places) == (True, sorted(places)), words


def test_a_judge_that_is_not_there_is_a_page_too(client: TestClient) -> None:
    assert "There is no such judge" in page(client.get("/view/judges/%3Cb%3E"), status=404).words()


def test_below_a_path_prefix_every_link_carries_it() -> None:
    client = TestClient(viewer_app([npc_group(1), pending_group(2)]), root_path="/gateway")
    for path in ("/", path_of(1), "/view/judges", "/view/judges/careful", "/view/groups/nope"):
        outline = Outline(client.get(f"/gateway{path}").text)
        local = [value for _, name, value in outline.attributes if name in {"src", "href", "action"}]
        assert [value for value in local if not value.startswith(("/gateway/", "#", DOCS))] == []


def test_assets_are_served_for_ever_under_their_version(client: TestClient) -> None:
    html = client.get("/").text
    for path in re.findall(r'(?:src|href)="(/view/assets/[^"]+)"', html):
        response = client.get(path)
        assert (response.status_code, "immutable" in response.headers["cache-control"]) == (200, True)
    assert client.get("/view/assets/x/pages.py").status_code == 404
    assert client.get("/view/assets/latest/viewer.css").headers["cache-control"] == "no-cache"


def test_a_page_that_is_not_there_names_the_nearest_one() -> None:
    app = FastAPI()
    app.router.routes.extend(create_viewer_router(MemoryViews([])).routes)
    install_problems(app)
    client = TestClient(app)
    browser = {"accept": "text/html,application/xhtml+xml"}
    shown, data = client.get("/view/group<i>s", headers=browser), client.get("/view/goups")
    assert (shown.status_code, data.status_code, data.json()["detail"]) == (
        404,
        404,
        "There is no page 'goups' under /view; did you mean 'groups'?",
    )
    outline = page(shown, status=404)
    assert ("i" in outline.elements, "/view/groups" in outline.links()) == (False, True)


def test_every_class_of_a_colour_scale_has_a_rule(client: TestClient) -> None:
    path = re.findall(r'href="(/view/assets/[^"]+css)"', client.get("/").text)[0]
    css = client.get(path).text
    assert [step for step in range(11) if f".heat-{step} " not in css or f".fill-{step} " not in css] == []
    assert "url(" not in css
    assert "@import" not in css


class _Shown(str):
    """A text whose end can be seen."""


def test_what_a_page_shows_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        "{% macro twice(text) %}{{ text }} {{ shown.upper() }}{% endmacro %}{{ twice(shown) }}"
    )
    request = Request({"type": "http", "path": "/", "query_string": b"", "headers": [(b"host", b"here")]})
    shown = _Shown("one")
    seen = weakref.ref(shown)
    body = Renderer([tmp_path], "1").render_page(request, "page.html", {"shown": shown}).body
    del shown
    assert (body, seen()) == (b"one ONE", None)
