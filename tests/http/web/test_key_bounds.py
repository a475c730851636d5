"""Two people train side by side with keys of their own: neither sees or changes what is the other's, on any route."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from app.domain.access import KeyBounds
from app.envs.gsm8k.environment import Gsm8k
from app.envs.mastermind.environment import Mastermind
from app.envs.npc_arena.environment import NpcArena
from app.http.web.api_keys import BoundKind, find_access, list_methods
from app.main.application import create_app
from app.settings import PolicySettings, Settings
from tests.support.atropos import ENVIRONMENT, TRAINER, group
from tests.support.bound_people import ADMIN, SECRET, WORD, Person, make_person, score, talk, use_turn
from tests.support.chat_server import serving
from tests.support.openenv import talking
from tests.support.playground import await_ready
from tests.support.tables import read_table
from tests.support.talking import speaks

TABLE = read_table(__file__, "key_bounds.yaml", tuple[tuple[str, str, str, int], ...])

REQUESTS = Path(__file__).with_name("bound_requests.yaml").read_text(encoding="utf-8")
"""With `$run` and the like for what is known once it is stored."""
PLACES: dict[str, Any] = yaml.load(REQUESTS, yaml.CSafeLoader)
TURNS = frozenset(["/play/v1/turns", "/play/v1/turns/{turn_id}"])
"""Of whoever talks: another removes none."""

EVENT = {"id": "rope", "time": "1312-04-03T09:15:00Z", "text": f"The rope to {WORD} broke."}
BOOK = {"name": "lore", "entries": [{"id": "one", "keys": [WORD], "content": f"All of {WORD}."}]}
ATROPOS = "/compat/atropos"


def store_everything(person: Person) -> None:
    run = world = f"{person.name}-1"
    person.ask("PUT", f"/runs/{run}", json={})
    handed, _ = score(person, "gsm8k", run)
    person.post(f"/worlds/{world}/events", {"events": [EVENT]})
    arena, judged = score(person, "npc_arena", run, world=world, turns="multi")
    game = person.post("/envs/mastermind/next-batch", {"batch_size": 1, "run": run})["tasks"][0]
    person.ask("PUT", f"/worlds/{world}/lorebooks/lore", json=BOOK).raise_for_status()
    item = person.post("/labels/next", {"labeller": person.name, "run": run})["item"]
    rollouts = [reply["rollout_id"] for reply in item["replies"]]
    pair = {"labeller": person.name, "pair": {"better": rollouts[0], "worse": rollouts[1]}}
    label = person.post(f"/groups/{judged['group_id']}/labels", pair)["label_id"]
    person.ask("PATCH", f"/worlds/{world}", json={"memory": True}).raise_for_status()
    turn, answer = talk(person, world)
    queue = f"{ATROPOS}/{run}"
    person.post(f"{queue}/register", TRAINER)
    person.post(f"{queue}/register-env", ENVIRONMENT)
    person.post(f"{queue}/scored_data", group(2))
    known = {"person": person.name, "run": run, "label": label, "turn": turn, "reply": answer, "item": item["lease_id"]}
    tasks = {"task": handed["task_id"], "lease": handed["lease_id"], "arena": arena["task_id"], "game": game["task_id"]}
    groups = {"group": judged["group_id"], "rollout": rollouts[0]}
    told = yaml.load(Template(REQUESTS).substitute(known | tasks | groups), yaml.CSafeLoader)
    person.names, person.forms = told["names"], told["forms"]
    person.bodies = {
        **told["bodies"],
        "POST /groups/*/labels": pair,
        "POST /worlds/*/events": {"events": [EVENT]},
        "PUT /worlds/*/events/*": EVENT,
        "PUT /worlds/*/lorebooks/*": BOOK,
        f"POST {ATROPOS}/*/register": TRAINER,
        f"POST {ATROPOS}/*/register-env": ENVIRONMENT,
        f"POST {ATROPOS}/*/scored_data": group(2),
        f"POST {ATROPOS}/*/scored_data_list": [group(2)],  # type: ignore[dict-item]
        **{f"POST /compat/ors/{below}/{path}": body for path, body in told["ors"].items() for below in ("*", "*/*")},
    }
    by_run = (f"{interface}/{path}" for interface, paths in told["run_queries"].items() for path in paths)
    person.queries = {**told["queries"], **{place: {"run": run} for place in by_run}}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("bounds")
    with serving(speaks(f"I row to {WORD}.")) as policy:
        settings = Settings(
            database_url=f"sqlite:///{folder}/keys.db",
            host="127.0.0.1",
            api_key=SECRET,
            policies={"warm": PolicySettings(base_url=policy.url, model="warm-model")},
        )
        made = create_app(settings, environments={kind.name: kind for kind in (Gsm8k, Mastermind, NpcArena)})
        with TestClient(made, base_url="http://localhost") as client:
            await_ready(client)
            made.state.portal = client.portal
            yield made


@pytest.fixture(scope="module")
def people(app: Any) -> tuple[Person, Person]:
    ada, bob = make_person(app, "ada"), make_person(app, "bob")
    store_everything(ada)
    return ada, bob


def list_places(app: Any) -> list[tuple[str, str, BoundKind]]:
    """Method and template of every route that needs a key, and where bounds are checked."""
    routes = [
        route for route in app.router.routes if type(route).__name__ not in {"WebSocketRoute", "APIWebSocketRoute"}
    ]
    return [
        (method, route.path, find_access(route).bound)
        for route in routes
        for method in list_methods(route)
        if find_access(route).scope is not None and method != "OPTIONS"
    ]


def fill(template: str, names: Mapping[str, str]) -> str:
    path = template
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    assert "{" not in path, template
    return path


def name_place(method: str, template: str) -> str:
    """With `*` for parameters alone, so that each environment's own routes are apart."""
    return f"{method} {'/'.join('*' if part.startswith('{') else part for part in template.split('/'))}"


def ask_as(person: Person, owner: Person, method: str, template: str) -> Any:
    place = name_place(method, template)
    body, query = owner.bodies.get(place, {}), owner.queries.get(place)
    if place in owner.forms:
        return person.ask(method, fill(template, owner.names), data=owner.forms[place])
    headers = {"Content-Type": "application/json", "X-Session-ID": f"{owner.name}-session"}
    sent = {"content": json.dumps(body), "headers": headers}
    has_body = method in {"POST", "PUT", "PATCH"} or "status-env" in template
    return person.ask(method, fill(template, owner.names), params=query, **(sent if has_body else {"headers": headers}))


def read_all_of(person: Person) -> list[str]:
    """All that a person has, as that person sees it."""
    run, world = person.names["run"], person.names["world"]
    paths = (
        f"/export?run={run}&private=true",
        f"/export?run={run}&shape=labels",
        f"/runs/{run}",
        f"/worlds/{world}",
        f"/worlds/{world}/events",
        f"/worlds/{world}/lorebooks",
        f"{ATROPOS}/{run}/info",
        f"{ATROPOS}/{run}/status",
        f"{ATROPOS}/{run}/why",
        f"/groups/{person.names['group_id']}",
        f"/play/v1/turns/{person.names['turn_id']}",
        "/play/v1/memories",
        "/runs",
        "/worlds",
        "/stats",
    )
    answers = {path: person.ask("GET", path) for path in paths}
    return [f"{path} {answer.status_code} {answer.text * answer.is_success}" for path, answer in answers.items()]


def test_what_one_stored_the_other_neither_reads_nor_changes_on_any_route(
    app: Any, people: tuple[Person, Person]
) -> None:
    ada, bob = people
    before = read_all_of(ada)
    opened = []
    for method, template, bound in list_places(app):
        answer = ask_as(bob, ada, method, template)
        shared = bound == "shared" or f"{method} {template}" in PLACES["same_for_all"]
        if WORD in answer.text or not (shared or answer.status_code in {403, 404} or is_empty(bob, answer, template)):
            opened.append((method, template, answer.status_code, answer.text[:300]))
    assert (opened, read_all_of(ada)) == ([], before)


def names_no_queue(template: str) -> bool:
    """The `default` queue is nobody's."""
    return template.startswith(ATROPOS) and "{run}" not in template


def is_empty(person: Person, answer: Any, template: str) -> bool:
    """Lists leave out what is others'; facts of an environment are the same for all."""
    if template.startswith(("/compat/openenv/", "/compat/ors/")) and template.endswith(tuple(PLACES["facts"])):
        return True
    if template in TURNS:
        return bool(answer.json() == {"removed": 0})
    return template in PLACES["lists"] and answer.status_code == 200 and "ada-" not in answer.text


def test_a_turn_is_used_and_removed_by_who_talked_alone(app: Any, people: tuple[Person, Person]) -> None:
    """What asks judges or writes scenes is closed to bound keys."""
    ada, bob = people
    cleo, dan = (make_person(app, name, is_bound=False) for name in ("cleo", "dan"))
    bound, free = talk(ada, "ada-1", "Of the turns."), talk(cleo, "ada-1", "Of the turns.")
    others = [use_turn(bob, *bound), use_turn(dan, *bound), use_turn(dan, *free)]
    all_of_others = [person.ask("DELETE", "/play/v1/turns").json() for person in (bob, dan)]
    own = [use_turn(ada, *bound), use_turn(cleo, *free)]
    assert (others, all_of_others) == (
        [([404, 404, 403, 403], 0), ([404] * 4, 0), ([404] * 4, 0)],
        [{"removed": 0}] * 2,
    )
    assert own == [([200, 200, 403, 403], 1), ([200] * 4, 1)]


def test_each_of_these_requests_is_answered_to_whom_it_belongs(app: Any, people: tuple[Person, Person]) -> None:
    """Else the other's refusals would show nothing. What ends things comes last."""
    ada, _ = people
    places = sorted(list_places(app), key=lambda one: (one[0] == "DELETE", "reset" in one[1], "disconnect" in one[1]))
    closed = [
        (method, template, answer.status_code, answer.text[:300])
        for method, template, bound in places
        if bound != "closed" and not names_no_queue(template)
        for answer in [ask_as(ada, ada, method, template)]
        if answer.status_code == 403
    ]
    assert closed == []


@pytest.mark.parametrize(("run", "act", "lease", "status"), TABLE)
def test_a_form_labels_and_shows_nothing_of_others(
    people: tuple[Person, Person], run: str, act: str, lease: str, status: int
) -> None:
    ada, bob = people
    before = read_all_of(ada)
    named = {"group": ada.names["group_id"], "label": ada.names["label_id"], "lease": lease, "choice": "equal"}
    sides = {side: f"{ada.names['group_id']}-{place}" for place, side in enumerate(("first", "second"))}
    told = bob.ask("POST", "/view/label", data={"labeller": "ada", "run": run, "act": act, **named, **sides})
    assert (told.status_code, "says ada" in told.text, read_all_of(ada)) == (status, False, before)


def test_an_episode_is_continued_by_its_own_key_alone(app: Any, people: tuple[Person, Person]) -> None:
    ada, bob = people
    with talking(ada.client, "mastermind") as talk:
        talk.told("reset", run="ada-1", episode_id="mine")
    with talking(bob.client, "mastermind") as talk:
        other = talk.refused("step", message="<guess>1 2 3 4</guess>", episode_id="mine")
        named = talk.refused("reset", run="ada-1")
    with talking(ada.client, "mastermind") as talk:
        own = talk.told("step", message="<guess>1 2 3 4</guess>", episode_id="mine")
    assert (other[1][:10], named[1][:37], own["done"]) == ("episode_id", "run: this key is bound to runs bob-*:", False)


def test_a_group_that_waits_for_pieces_is_shown_to_its_own_key_alone(people: tuple[Person, Person]) -> None:
    ada, _ = people
    task = ada.post("/envs/gsm8k/next-batch", {"batch_size": 1, "run": "ada-3"})["tasks"][0]
    piece = {"key": "open", "index": 0, "size": 2}
    asked = {"task_id": task["task_id"], "completions": [{"text": WORD}], "part": piece}
    body = {"groups": [asked], "run": "ada-3", "wait_seconds": 0}
    group_id = ada.post("/score", body)["groups"][0]["group_id"]
    answers = [
        person.ask("GET", path) for person in people for path in (f"/groups/{group_id}", f"/groups?id={group_id}")
    ]
    assert [(answer.status_code, WORD in answer.text) for answer in answers] == [
        (200, True),
        (200, False),
        (404, False),
        (404, False),
    ]


def test_two_keys_may_choose_the_same_idempotency_key(app: Any, people: tuple[Person, Person]) -> None:
    """Bound or not, and with a run or without."""
    free = [make_person(app, name, is_bound=False) for name in ("eli", "fay", "gus")]
    statuses = []
    for person, run in [*((one, f"{one.name}-2") for one in (*people, *free)), *((one, None) for one in free)]:
        task = person.post("/envs/gsm8k/next-batch", {"batch_size": 1, "run": run})["tasks"][0]
        asked = {"task_id": task["task_id"], "completions": [{"text": f"of {person.name}"}]}
        body = {"groups": [asked], "run": run}
        key = "with-a-run" if run else "without"
        statuses.append(person.ask("POST", "/score", json=body, headers={"Idempotency-Key": key}).status_code)
        again = body | {"groups": [asked | {"completions": [{"text": "another"}]}]}
        statuses.append(person.ask("POST", "/score", json=again, headers={"Idempotency-Key": key}).status_code)
    assert statuses == [200, 422] * 8


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "run"),
        ({"run": "ada-1"}, "run"),
        ({"run": "bob-1", "params": {"world": "ada-1"}}, "params.world"),
    ],
)
def test_a_refusal_names_the_field_and_the_bound(people: tuple[Person, Person], body: Any, field: str) -> None:
    answer = people[1].ask("POST", "/envs/npc_arena/next-batch", json=body)
    told = answer.json()
    assert (answer.status_code, told["errors"][0]["field"], "bob-*" in told["detail"]) == (403, field, True)


def test_a_socket_beyond_the_bounds_is_closed(app: Any) -> None:
    admin = TestClient(app, base_url="http://localhost", headers=ADMIN)
    bounds = {"environments": ["gsm8k"]}
    secret = admin.post("/admin/keys", json={"name": "few", "bounds": bounds}).json()["secret"]
    client = TestClient(app, base_url="http://localhost", headers={"Authorization": f"Bearer {secret}"})
    with pytest.raises(WebSocketDisconnect) as closed, talking(client, "mastermind"):
        pass
    answers = [client.get(f"/envs/{name}/next-batch").status_code for name in ("gsm8k", "mastermind")]
    assert (closed.value.code, answers) == (1008, [200, 403])


@pytest.mark.parametrize(
    ("bounds", "run", "environment", "dataset", "world", "allowed"),
    read_table(__file__, "names_within_bounds.yaml", list[tuple[Any, str | None, str, str | None, str, list[bool]]]),
)
def test_names_are_within_bounds(
    bounds: Any, run: str | None, environment: str, dataset: str | None, world: str, allowed: list[bool]
) -> None:
    key = KeyBounds.model_validate(bounds)
    asked = [
        key.allows_run(run),
        key.allows_environment(environment),
        key.allows_dataset(dataset),
        key.allows_world(world),
    ]
    assert asked == allowed


def test_a_bound_key_has_no_scope_of_the_whole_service(app: Any) -> None:
    admin = TestClient(app, base_url="http://localhost", headers=ADMIN)
    answer = admin.post("/admin/keys", json={"name": "x", "scopes": ["admin"], "bounds": {"runs": ["x"]}})
    assert (answer.status_code, "whole service" in answer.text) == (422, True)
