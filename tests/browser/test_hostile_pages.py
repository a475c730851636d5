"""Whatever strangers and models write, and whatever an address or a form holds, is text on every page of the viewer.

Pages of a store that is hostile throughout are compared with those of one that is not: nothing else may be in them but
other words. A route that is added is asked too; it has to show something hostile, or a reason why it cannot.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx2
import pytest
from playwright.sync_api import Browser, Route

from tests.support.chromium import strangers, violations, watched
from tests.support.hostile_store import FilledStore, fill_store
from tests.support.outline import Outline
from tests.support.sample_texts import HOSTILE_LINES, HOSTILE_WORDS, INVISIBLE, SIGNS

ORIGIN: Final = "http://127.0.0.1"
EVIL: Final = HOSTILE_LINES[0]
ADDRESSES: Final = frozenset(("href", "src", "action", "formaction", "xlink:href", "data-drop", "data-import"))
HERE: Final = re.compile(r"(?:/(?![/\\])[!-~]*|[#?][!-~]*|)\Z")
"""An address of this service, without anything that is written otherwise in addresses."""
NOT_SHOWN: Final = {
    "GET /view/assets/{version}/{name}": "our own files",
    "GET /view/runs": "names are letters, digits, - and _",
    "GET /view/worlds": "so are those of worlds",
    "GET /view/worlds/{world}/write": "it shows no name that it refuses",
    "POST /sign-out": "it leads to another page",
}
UNSEEN: Final = {"atropos-wandb_group", "atropos-wandb_project", "policy-says"}
"""What no page shows."""


@dataclass(frozen=True)
class Visit:
    """One request. In all texts of it `{…}` is a place of the store, and `@` hostile."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    status: int | None = 200

    def __str__(self) -> str:
        return f"{'GET' if self.form is None else 'POST'} {self.path} {dict(self.query)} {self.form or ''}"


STORED: Final = (
    Visit("/"),
    Visit("/sign-in", {"next": '/view/"><script>owned()</script>'}),
    Visit("/view/atropos"),
    Visit("/view/author"),
    Visit("/view/characters"),
    Visit("/view/characters/{character}"),
    Visit("/view/characters/{character}/edit"),
    Visit("/view/characters/{character}/edit", {"revision": "1"}),
    Visit("/view/characters/{character}/scenes/edit", {"scene": "mara-sees"}),
    Visit("/view/compare", {"first": "{run}", "first_steps": "1", "second_steps": "2", "judge": "own"}),
    Visit("/view/compare", {"first": "{run}", "first_steps": "@", "second_steps": "2", "first_model": "@"}),
    Visit("/view/export", {"run": "{run}", "environment": "npc_arena"}),
    Visit("/view/export", {"environment": "bazaar", "private": "true", "top_k": "@"}),
    Visit("/view/groups"),
    Visit("/view/groups", {"text": "prompt-user @"}),
    Visit("/view/groups/{arena}", {"first": "1", "second": "2"}),
    Visit("/view/groups/{bazaar}"),
    Visit("/view/judges"),
    Visit("/view/label", {"group": "{arena}"}),
    Visit("/view/label", {"group": "{bazaar}", "labeller": "@"}),
    Visit("/view/runs"),
    Visit("/view/runs/{run}"),
    *(Visit("/view/runs/{run}", {"by": by, "environment": "bazaar", "chart": "@"}) for by in ("label", "judge")),
    *(Visit("/view/stats", {"by": by}) for by in ("label", "judge", "dataset")),
    Visit("/view/talk"),
    Visit("/view/talk", {"turn": "{turn}"}),
    Visit("/view/worlds"),
    Visit("/view/worlds/{world}"),
    Visit("/view/worlds/{world}/why", {"character": "{character}", "q": "ferry @"}),
    Visit("/view/worlds/{world}/write"),
    Visit("/view/worlds/{world}/events/rope/edit"),
    Visit("/view/worlds/{world}/lorebooks/coast/edit", {"line": "ferry"}),
)
"""Pages on which what is stored is seen."""
WRITTEN: Final = {"text": "@: @\n- @", "stamp": "@", "note": "@", "line": "ferry @", "scene": "@"}
SAID: Final = {"character": "{character}", "world": "{world}", "policy": "warm", "line": "ferry @"}
FORMS: Final = (
    Visit("/sign-in", form={"key": "@", "next": '/view/"><script>owned()</script>'}, status=403),
    Visit("/sign-out", form={"x": "@"}, status=303),
    Visit("/view/label", form=dict.fromkeys(("labeller", "environment", "run", "comment"), "@"), status=422),
    Visit("/view/label", form={"labeller": "ada", "act": "send", "group": "{bazaar}", "comment": "@", "shown": "@"}),
    Visit("/view/label", form={"labeller": "ada", "act": "undo", "label": "@", "environment": "bazaar"}),
    Visit("/view/talk/say", form={**SAID, "store": "false"}),
    Visit("/view/talk/say", form={**SAID, "go_on": "@", "conversation": "[]"}, status=303),
    Visit("/view/talk/say", form={**SAID, "player_name": "@", "as_of": "@", "policy": "@"}, status=422),
    Visit("/view/talk/say", form={**SAID, "conversation": "@"}, status=422),
    Visit("/view/talk/@", form={"turn": "@"}, status=404),
    Visit("/view/talk/author/judge", form={"turn": "{turn}"}),
    Visit("/view/talk/author/@", form={"turn": "@"}, status=404),
    *(
        Visit(path, form={**WRITTEN, "do": doing}, status=status)
        for path in (
            *("/view/characters/{character}/edit", "/view/characters/{character}/scenes/edit"),
            *("/view/worlds/{world}/events/owl/edit", "/view/worlds/{world}/lorebooks/hill/edit"),
        )
        for doing, status in (("check", 200), ("save", 422))
    ),
)
ELSEWHERE: Final = (
    Visit("/", {"@": "@"}, status=307),
    *(Visit("/@", status=404), Visit("/view/@", status=404), Visit("/view/groups", {"before": "@"}, status=422)),
)
TEXTS: Final = (str, list[str], list[str] | None)
FILTERED: Final = 8
"""A page with more queries than these has a filter, whose words are asked together."""
FILES: Final = (
    *(Visit("/export", {"run": "{run}", name: "@"}) for name in ("env", "shape", "format", "label")),
    *(Visit("/export", {"run": "{run}", "offline_judge": "true"}), Visit("/characters/archive")),
)
"""What is downloaded under a name."""


@dataclass(frozen=True)
class Answered:
    visit: Visit
    hostile: httpx2.Response
    harmless: httpx2.Response

    @cached_property
    def page(self) -> Outline:
        return Outline(self.hostile.text)

    @property
    def is_page(self) -> bool:
        return self.hostile.headers.get("content-type", "") == "text/html; charset=utf-8"


def list_routes(filled: FilledStore) -> list[Any]:
    routes: list[Any] = list(filled.client.app.routes)  # type: ignore[attr-defined]
    modules = ((one, getattr(one, "endpoint", ask).__module__) for one in routes)
    return [one for one, module in modules if module.startswith("app.http.viewer.") or module.endswith(".pages")]


def list_queries(dependant: Any) -> Iterator[str]:
    """Those that are texts."""
    yield from (one.alias for one in dependant.query_params if one.field_info.annotation in TEXTS)
    for inner in dependant.dependencies:
        yield from list_queries(inner)


def list_visits(filled: FilledStore) -> list[Visit]:
    """What is written down here, and each route with an address and queries that are hostile throughout."""
    visits = [*STORED, *FORMS, *ELSEWHERE]
    for route in list_routes(filled):
        if "GET" in route.methods:
            known = route.path.replace("{group_id}", "{arena}")
            known = known.replace("{name}", "rope" if "/events/" in known else "coast")
            names = [*list_queries(route.dependant)]
            asked = [names] if len(names) > FILTERED else [[name] for name in names]
            visits += [Visit(known, dict.fromkeys(some, "@"), status=None) for some in asked]
            visits += [Visit(re.sub("{[a-z_]+}", "@", known), status=None)] if "{" in known else []
    return visits


def ask(filled: FilledStore, visit: Visit) -> httpx2.Response:
    evil = EVIL if filled.write.is_hostile else EVIL.translate(SIGNS)

    def fill(text: str, evil: str = evil) -> str:
        return re.sub("{([a-z]+)}", lambda found: filled.places[found[1]], text).replace("@", evil)

    def fill_all(texts: Mapping[str, str]) -> dict[str, str]:
        return {fill(name): fill(text) for name, text in texts.items()}

    return filled.client.request(
        "GET" if visit.form is None else "POST",
        f"{fill(visit.path, quote(evil, safe=''))}?{urlencode(fill_all(visit.query))}".rstrip("?"),
        data=None if visit.form is None else fill_all(visit.form),
        headers={"Accept": "text/html"},
        follow_redirects=False,
    )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FilledStore, FilledStore]]:
    """The hostile and the harmless one."""
    folder = tmp_path_factory.mktemp("hostile")
    with fill_store(folder / "one", is_hostile=True) as one, fill_store(folder / "other", is_hostile=False) as other:
        yield one, other


@pytest.fixture(scope="module")
def answers(stores: tuple[FilledStore, FilledStore]) -> list[Answered]:
    return [Answered(visit, *(ask(one, visit) for one in stores)) for visit in list_visits(stores[0])]


def find_faults(answered: Answered) -> list[object]:
    """What comes alive, leads elsewhere or is not to be seen."""
    page, other = answered.page, Outline(answered.harmless.text)
    grown = (page.shapes - other.shapes) + (other.shapes - page.shapes)
    inline = [one for one in page.attributes if one[1].startswith("on") or one[1] == "style"]
    leading = [one for one in page.attributes if one[1] in ADDRESSES and not HERE.match(one[2])]
    shown = [*page.text, *(value for *_, value in page.attributes)]
    unseen = [text for text in shown if set(text) & set(INVISIBLE) and text not in page.kept]
    return [*grown.items(), *inline, *leading, *unseen, *page.open]


def test_nothing_but_words_differs_from_a_harmless_page(answers: list[Answered]) -> None:
    faults = {str(one.visit): find_faults(one) for one in answers if one.is_page}
    assert {name: found for name, found in faults.items() if found} == {}


def test_what_is_no_page_is_told_apart_and_answers_are_alike(answers: list[Answered]) -> None:
    told = {str(one.visit): (one.hostile.status_code, one.harmless.status_code) for one in answers}
    wanted = {str(one.visit): one.visit.status or one.hostile.status_code for one in answers}
    kinds = {one.hostile.headers.get("content-type") for one in answers if not one.is_page}
    assert told == {name: (status, status) for name, status in wanted.items()}
    assert [name for name, (status, _) in told.items() if status >= 500] == []
    assert kinds == {"application/problem+json", None}


def test_headers_lead_nowhere_else_and_end_where_they_should(
    stores: tuple[FilledStore, FilledStore], answers: list[Answered]
) -> None:
    replies = [*(one.hostile for one in answers), *(ask(stores[0], visit) for visit in FILES)]
    wrong = [
        (str(reply.request.url), name, value)
        for reply in replies
        for name, value in reply.headers.items()
        if re.search(r"[^ -~]", name + value) or (name == "location" and not HERE.match(value))
    ]
    guarded = {(one.headers["x-content-type-options"], one.headers["content-security-policy"][:19]) for one in replies}
    assert (wrong, guarded) == ([], {("nosniff", "default-src 'none';")})


def read_all(answered: Answered) -> str:
    return "".join([*answered.page.text, *(value for *_, value in answered.page.attributes)])


def test_every_route_shows_something_hostile(stores: tuple[FilledStore, FilledStore], answers: list[Answered]) -> None:
    """Else the tests above would show nothing."""
    routes = list_routes(stores[0])
    shown = set()
    for one in answers:
        if one.is_page and any(word in read_all(one) for word in HOSTILE_WORDS):
            request = one.hostile.request
            route = next(
                each for each in routes if request.method in each.methods and each.path_regex.match(request.url.path)
            )
            shown.add(f"{request.method} {route.path}")
    assert {f"{method} {one.path}" for one in routes for method in one.methods} - shown == set(NOT_SHOWN)


def test_every_text_of_the_store_is_seen_somewhere(
    stores: tuple[FilledStore, FilledStore], answers: list[Answered]
) -> None:
    pages = "".join(read_all(one) for one in answers if one.is_page)
    assert {place for place in stores[0].write.said if f"{place} " not in pages} == UNSEEN


PARSED: Final = """(pages) => pages.map((html) => {
  const all = [...new DOMParser().parseFromString(html, "text/html").querySelectorAll("*")];
  return all.map((one) => [one.localName, ...one.getAttributeNames().sort()].join(" ")).sort().join();
})"""


@pytest.mark.browser
def test_nothing_comes_alive_in_a_browser(
    browser: Browser, stores: tuple[FilledStore, FilledStore], answers: list[Answered]
) -> None:
    pages = [one for one in answers if one.is_page]

    fetch = cache(lambda url: stores[0].client.get(url, headers={"Accept": "text/html"}))

    def serve(route: Route) -> None:
        answer = fetch(route.request.url)
        route.fulfill(status=answer.status_code, headers=dict(answer.headers), body=answer.content)

    with browser.new_context(service_workers="block") as context:
        page, watch = watched(context)
        page.route("**/*", serve)
        broken = []
        for one in {one.visit.path: one for one in pages if one.visit in STORED}.values():
            page.goto(str(one.hostile.request.url))
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            broken += violations(page)
        hostile, harmless = (
            page.evaluate(PARSED, texts)
            for texts in zip(*((one.hostile.text, one.harmless.text) for one in pages), strict=True)
        )
    differing = [str(one.visit) for one, read, other in zip(pages, hostile, harmless, strict=True) if read != other]
    assert (watch.complaints, broken, strangers(watch, ORIGIN), differing) == ([], [], [], [])
