"""Whatever strangers and models write, and whatever an address or a form holds, is text on every page of the viewer.

Pages of a store that is hostile throughout are compared with those of one that is not: nothing else may be in them but
other words. A route that is added is asked too; it has to show something hostile, or a reason why it cannot.
"""

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlencode

import httpx2
import pytest
import yaml
from playwright.sync_api import Browser, Route
from pydantic import BaseModel
from starlette.testclient import TestClient

from app.domain.judging import DefectRule, Rubric, RubricCriterion
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, FunctionSpec, Message, Task, ToolSpec
from app.domain.values import NoParams, Split
from app.envs.npc_arena.environment import NpcArena
from app.http.viewer.rendering import DOCS
from app.main.application import create_app
from app.ports.environment import Environment, Tools
from app.settings import EnvironmentSettings, JudgeSettings, PolicySettings, Settings
from tests.support.atropos import ENVIRONMENT, TRAINER
from tests.support.atropos import group as build_sequences
from tests.support.chat_server import Received, Reply, Script, serving
from tests.support.chromium import strangers, violations, watched
from tests.support.databases import read_migrated_store
from tests.support.judge_cases import failure
from tests.support.outline import Outline
from tests.support.playground import READ_SECONDS, await_ready
from tests.support.sample_texts import HOSTILE_LINES, HOSTILE_WORDS, INVISIBLE, SIGNS
from tests.support.shown_prompts import read_prompt
from tests.support.tables import read_table
from tests.support.talking import write_stream

Json = dict[str, Any]
MARA: Final = "mara"
QUAY: Final = "quay"
RUN: Final = "wicked"
MAX_WIDTH: Final = 2**20
"""Lines are not folded: hostile ones would be elsewhere."""
TOLD: Final = read_table(__file__, "hostile_pages.yaml", dict[str, Any])
_VISIBLE: Final = str.maketrans(dict.fromkeys(INVISIBLE))


@dataclass
class Writer:
    """Texts that name the field in which they stand. `said` are those that were asked for, by field."""

    is_hostile: bool
    said: dict[str, str] = field(default_factory=dict)

    def line(self, place: str, kind: int | None = None) -> str:
        """Of at most 100 characters. Fields take the kinds of hostile lines in turn."""
        number = len(self.said) if kind is None else kind
        return self._write(place, HOSTILE_LINES[number % len(HOSTILE_LINES)])

    def text(self, place: str) -> str:
        """All kinds."""
        return self._write(place, "\n".join(HOSTILE_LINES))

    def reply(self, place: str) -> str:
        """Without invisible signs, of which gates take notice."""
        return self._write(place, "Two coppers. " + HOSTILE_LINES[len(place) % 3].translate(_VISIBLE))

    def _write(self, place: str, hostile: str) -> str:
        text = f"{place} {hostile} {place}"  # models are told apart by what is behind the last slash
        return self.said.setdefault(place, text if self.is_hostile else text.translate(SIGNS))


def build_bazaar(write: Writer) -> type[Environment]:
    """An environment with a data set, a rubric and a scorer that a stranger wrote."""

    class Bazaar(Environment):
        name: ClassVar[str] = "bazaar"
        version: ClassVar[str] = "1"
        Params: ClassVar[type[BaseModel]] = NoParams
        stats_label: ClassVar[str | None] = "stall"
        rubric: ClassVar[Rubric | None] = Rubric(
            name="bazaar",
            version="1",
            instructions="",
            criteria=(
                RubricCriterion(
                    name=write.line("rubric-criterion"),
                    weight=1.0,
                    description=write.text("rubric-description"),
                    anchors={0: write.line("rubric-anchor"), 4: "good"},
                ),
            ),
            defects=(DefectRule(code=write.line("rubric-defect"), description=write.text("defect-description")),),
        )

        def size(self, split: Split, params: BaseModel) -> int | None:
            return 3

        def task(self, split: Split, index: int, params: BaseModel) -> Task:
            argument = {"type": write.line("argument-type"), "description": write.line("argument-description")}
            schema: Json = {"properties": {write.line("argument-name"): argument}}
            tool = FunctionSpec(name=write.line("tool-name"), description=write.text("tool-text"), parameters=schema)
            return Task(
                messages=(
                    Message(role="system", content=write.text("prompt-system")),
                    Message(role="user", content=write.text("prompt-user"), name=write.line("prompt-name")),
                ),
                tools=(ToolSpec(function=tool),),
                metadata={"number": index, "stall": write.line("label"), write.line("metadata-name"): ["x"]},
                reference=str(index),
            )

        async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
            note, named = write.line("criterion-note"), write.line("criterion-name")
            return [
                Score(
                    outcome="scored",
                    reward=place / 4,
                    gate=1.0,
                    absolute=place / 4,
                    criteria=(Criterion(name=named, value=place / 4, weight=1.0, note=note),),
                    flags=(write.line("score-flag"),),
                    rationale=write.text("rationale"),
                )
                for place, _ in enumerate(group)
            ]

    return Bazaar


def fill_in(template: Any, write: Writer) -> Any:
    """Writes what stands in angle brackets: a line or a text of that name."""
    if isinstance(template, dict):
        return {fill_in(name, write): fill_in(one, write) for name, one in template.items()}
    if isinstance(template, list):
        return [fill_in(one, write) for one in template]
    found = re.fullmatch("<(line|text) (.+)>", str(template))
    return template if found is None else getattr(write, found[1])(found[2])


def judge_as(write: Writer) -> Script:
    """Prefers the longer reply, says so in hostile words, and quotes what it read."""

    def reply(number: int, received: Received) -> Reply:
        told = read_prompt(received.messages[1]["content"])
        ordered = sorted(told.texts, key=lambda letter: -len(told.texts[letter]))
        levels = {letter: 4 - place for place, letter in enumerate(ordered)}
        quoted = {"candidate": ordered[-1], "quote": told.texts[ordered[-1]]}
        answer = {
            "claims": [{**quoted, "source": None}],
            "defects": [{**quoted, "code": "addresses_judge"}],
            "scores": dict.fromkeys(told.criteria, levels),
            "ranking": [[letter] for letter in ordered],
            "notes": {letter: write.line("judge-note") for letter in ordered},
        }
        said = f"{write.text('judge-words')}\n{json.dumps(answer)}"
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        named = {"model": write.line("judge-says"), "system_fingerprint": write.line("judge-fingerprint")}
        return Reply(json.dumps({"choices": [choice], **named}).encode())

    return reply


def speak_as(write: Writer) -> Script:
    stream = write_stream(write.text("reply"))
    choice = {"index": 0, "message": {"role": "assistant", "content": write.text("reply")}, "finish_reason": "stop"}
    whole = json.dumps({"id": "own", "model": write.line("policy-says"), "choices": [choice]}).encode()

    def reply(number: int, received: Received) -> Reply:
        if received.body.get("stream"):
            return Reply(stream, headers={"content-type": "text/event-stream"})
        return Reply(whole)

    return reply


@dataclass
class FilledStore:
    """`groups` are ids of groups by what is in them."""

    client: TestClient
    write: Writer
    groups: dict[str, str] = field(default_factory=dict)
    turn: str = ""

    @property
    def places(self) -> Mapping[str, str]:
        return {"character": MARA, "world": QUAY, "run": RUN, "turn": self.turn, **self.groups}

    def send(self, method: str, path: str, body: object) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def fill(self) -> None:
        self._write_world()
        for step in (1, 2):
            self.groups["arena"] = self._answer("npc_arena", self._say(step), step, world=QUAY)
            self.groups["bazaar"] = self._answer("bazaar", [self._call(place) for place in range(2)], step)
        self.send("POST", f"/groups/{self.groups['arena']}/rescore", {"judges": ["broken"]})
        self._register()
        self._talk()

    def _write_world(self) -> None:
        write = self.write
        written = {suffix: fill_in(TOLD[name], write) for suffix, name in (("", "sheet"), ("/scenes", "scenes"))}
        for suffix, told in written.items():
            text = yaml.safe_dump(told, width=MAX_WIDTH)
            note = write.line(f"note{suffix.replace('/', '-')}")
            self.send("PUT", f"/characters/{MARA}{suffix}", {"text": text, "revision": 0, "note": note})
        self.send("POST", f"/worlds/{QUAY}/events", {"events": [fill_in(TOLD["event"], write)]})
        self.send("PATCH", f"/worlds/{QUAY}", {"memory": True})
        lines = [{"speaker": "player", "text": write.text("memory")}]
        self.send("POST", "/play/v1/memories", {"world": QUAY, "heard_by": [MARA], "lines": lines})
        self.send("PUT", f"/worlds/{QUAY}/lorebooks/coast", fill_in(TOLD["book"], write))
        self.send("PUT", f"/worlds/{QUAY}-2", {"parent": QUAY, "at": "1312-04-04T00:00:00Z"})
        draft = {"name": write.line("draft-name"), "who": "Keeps the lamp.", "language": "en", "rating": "teen"}
        told = self.client.post("/view/author", data={**draft, "do": "save"}, follow_redirects=False)
        assert told.status_code == 303, told.text

    def _say(self, step: int) -> list[Json]:
        write = self.write
        texts = [write.reply(f"said-{step}"), write.reply("said-always") + " And no more.", write.text("said-gated")]
        return [{"text": text, "finish_reason": write.line("finish")} for text in texts]

    def _call(self, place: int) -> Json:
        write = self.write
        argument = {write.line("call-argument"): write.text("call-value")}
        calls = [
            {"function": {"name": write.line("call-name"), "arguments": argument}},
            {"function": {"name": "look", "arguments": write.line("call-broken")}},
        ]
        said = [
            {"role": "assistant", "content": write.text("call-said") + " On." * 400, "tool_calls": calls},
            {"role": "tool", "name": write.line("result-name"), "content": write.text("result-text")},
            {"role": "tool", "content": json.dumps({"error": write.text("result-error")})},
            {"role": "assistant", "content": f"Done {place}."},
        ]
        return {"messages": said, "extra": {write.line("extra"): 1}}

    def _answer(self, environment: str, said: list[Json], step: int, **params: str) -> str:
        asked = {"batch_size": 1, "run": RUN, "cursor": 0, "params": params}
        (task,) = self.send("POST", f"/envs/{environment}/next-batch", asked)["tasks"]
        body = {
            "run": RUN,
            "policy": {"model": self.write.line("policy-model"), "step": step},
            "groups": [{"task_id": task["task_id"], "completions": said}],
        }
        (group,) = self.send("POST", "/score", body)["groups"]
        return str(group["group_id"])

    def _register(self) -> None:
        """An Atropos trainer and environment."""
        named = {name: self.write.line(f"atropos-{name}") for name in ("wandb_group", "wandb_project")}
        queue = f"/compat/atropos/{RUN}"
        self.send("POST", f"{queue}/register", {**TRAINER, **named})
        self.send("GET", f"{queue}/batch", None)  # from then on it is known to wait for environments
        self.send("POST", f"{queue}/register-env", {**ENVIRONMENT, "desired_name": self.write.line("atropos-env")})
        self.send("POST", f"{queue}/scored_data", build_sequences(2))

    def _talk(self) -> None:
        asked = {
            "model": f"{MARA}/{QUAY}@warm",
            "messages": [{"role": "user", "content": "Is the ferry running? " + self.write.text("player-line")}],
        }
        told = self.send("POST", "/play/v1/chat/completions", asked)["play"]
        self.turn = told["turn"]


def _await_index(client: TestClient) -> None:
    """Else a search finds in one store what it does not find in the other."""
    end = time.monotonic() + READ_SECONDS
    while "not searched by text yet" in client.get("/view/groups", params={"text": "said"}).text:
        assert time.monotonic() < end
        time.sleep(0.05)


@contextlib.contextmanager
def fill_store(folder: Path, *, is_hostile: bool) -> Iterator[FilledStore]:
    """Through the public API alone, but for what an operator writes into settings."""
    write = Writer(is_hostile)
    sheets, database = folder / "sheets", folder / "store.db"
    sheets.mkdir(parents=True)
    plain = {
        "meta": {"schema_version": 1, "id": MARA, "licence": "MIT", "genre": "x", "world": "coast", "summary": "x"}
    }
    (sheets / f"{MARA}.yaml").write_text(json.dumps({**plain, "identity": {"name": "Mara"}}), encoding="utf-8")
    database.write_bytes(read_migrated_store())
    with (
        serving(judge_as(write)) as judge,
        serving(lambda number, received: failure(400, write.text("judge-error"))) as broken,
        serving(speak_as(write)) as policy,
    ):
        settings = Settings(
            database_url=f"sqlite:///{database}",
            character_sheets=sheets,
            judges={
                "critic": JudgeSettings(base_url=judge.url, model=write.line("judge-model"), warm_cache=False),
                "broken": JudgeSettings(base_url=broken.url, model=write.line("broken-model"), warm_cache=False),
            },
            environments={"npc_arena": EnvironmentSettings(judges=("critic",), calibration_share=0)},
            policies={"warm": PolicySettings(base_url=policy.url, model=write.line("policy-name"))},
        )
        kinds: dict[str, type[Environment]] = {"npc_arena": NpcArena, "bazaar": build_bazaar(write)}
        with TestClient(create_app(settings, environments=kinds), base_url="http://127.0.0.1") as client:
            await_ready(client)
            filled = FilledStore(client, write)
            filled.fill()
            _await_index(client)
            yield filled


ORIGIN: Final = "http://127.0.0.1"
EVIL: Final = HOSTILE_LINES[0]
ADDRESSES: Final = frozenset(("href", "src", "action", "formaction", "xlink:href", "data-drop", "data-import"))
HERE: Final = re.compile(r"(?:/(?![/\\])[!-~]*|[#?][!-~]*|)\Z")
"""An address of this service, without anything that is written otherwise in addresses."""
NOT_SHOWN: Final = {
    "GET /view/assets/{version}/{name}": "our own files",
    "GET /view/worlds": "names are letters, digits, - and _",
    "GET /view/new-world": "the form is empty",
    "GET /view/worlds/{world}/events/new": "so is that of an event",
    "GET /view/worlds/{world}/lorebooks/new": "so is that of a lorebook",
    "GET /view/characters/{character}/form": "the sheets of the store say more than a form holds",
    "GET /view/characters/{character}/portrait": "a picture",
    "GET /view/stats": "it leads to another page",
    "POST /sign-out": "so does this",
    "POST /view/worlds/{world}/memory": "and this",
    "POST /view/author/archive": "a ZIP: tests/features/authoring sends one with hostile names",
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


STORED, FORMS, ELSEWHERE, FILES = (
    tuple(Visit(**one) for one in TOLD[kind]) for kind in ("stored", "forms", "elsewhere", "files")
)
TEXTS: Final = (str, list[str], list[str] | None)
FILTERED: Final = 8
"""A page with more queries than these has a filter, whose words are asked together."""


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
    return [one for one, module in modules if re.match(r"app\.(http\.viewer\.|.*pages$)", module)]


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
    leading = [one for one in leading if not one[2].startswith(f"{DOCS}/")]
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
