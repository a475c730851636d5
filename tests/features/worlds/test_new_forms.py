"""Forms for new worlds, events and lorebooks: what they make of what is written, and what becomes of it."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from starlette.testclient import TestClient

from app.characters.schema import CharacterSheet, Core, Identity, Meta, Voice
from app.domain.authored_files import ListedDraft
from app.envs.npc_arena.environment import NpcArena
from app.features.worlds.author_pages import NewKind, build_audience, read_new
from app.settings import Settings
from tests.support.outline import page
from tests.support.playground import serve_here
from tests.support.tables import read_table


class Form(BaseModel):
    kind: NewKind
    sent: dict[str, str]
    world: str = "quay"
    name: str
    content: Mapping[str, Any] | None = None
    problems: Mapping[str, str] = {}


class Forms(BaseModel):
    event: dict[str, str]
    book: dict[str, str]
    forms: dict[str, Form]


TABLE = read_table(__file__, "new_forms.yaml", Forms)
HOB = CharacterSheet(
    meta=Meta(schema_version=1, licence="x", id="hob_tarrant", genre="x", world="x", summary="x"),
    identity=Identity(name="Hob Tarrant", aliases=("Old Hob",), circles=("reedgate",)),
    core=Core(),
    voice=Voice(),
)
AUDIENCE = build_audience(
    [HOB],
    [
        ListedDraft(file="jenny_hale.yaml", called=("Jenny Hale",)),
        ListedDraft(file="jenny_moor.yaml", called=("Jenny Moor",)),
    ],
)


@pytest.mark.parametrize("told", TABLE.forms.values(), ids=TABLE.forms)
def test_what_a_form_makes(told: Form) -> None:
    """`X201` is a text of so many characters."""
    sent = {name: "x" * int(text[1:]) if text[:1] == "X" else text for name, text in told.sent.items()}
    made = read_new(told.kind, "" if told.kind == "world" else "quay", sent, AUDIENCE)
    content = None if made.content is None else made.content.model_dump(mode="json", exclude_defaults=True)
    assert (made.world, made.name, content, made.problems) == (told.world, told.name, told.content, told.problems)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    database = tmp_path_factory.mktemp("forms") / "store.db"
    settings = Settings(database_url=f"sqlite:///{database}", api_key=SecretStr("admin"))
    with serve_here(settings, NpcArena) as client:
        client.headers["Authorization"] = "Bearer admin"
        client.follow_redirects = False
        yield client


def test_a_world_is_made_by_forms(client: TestClient) -> None:
    new = {**TABLE.event, "world": "Salt Market"}
    checked = page(client.post("/view/new-world", data={**new, "do": "check"})).words()
    before = client.get("/worlds").json()["worlds"]
    saved = client.post("/view/new-world", data={**new, "do": "save"})
    shown = page(client.get(saved.headers["location"]))
    again = page(client.post("/view/new-world", data={**new, "do": "save"}), 422)
    event = client.post("/view/worlds/salt_market/events/new", data={**TABLE.event, "event": "Rope", "do": "save"})
    twice = page(
        client.post("/view/worlds/salt_market/events/new", data={**TABLE.event, "event": "Rope", "do": "save"}), 422
    )
    following = page(client.get("/view/worlds/salt_market/events/new"))
    book = client.post("/view/worlds/salt_market/lorebooks/new", data={**TABLE.book, "do": "save"})
    lore = page(client.get(book.headers["location"]))
    events = [one["id"] for one in client.get("/worlds/salt_market/events").json()["events"]]
    assert ("Saved as world salt_market , event the_tide_took_the_pier ." in checked, before) == (True, [])
    assert saved.headers["location"] == "/view/worlds/salt_market?event=the_tide_took_the_pier"
    assert "Saved: event the_tide_took_the_pier , 1312-04-03 09:15:00 , known to everybody." in shown.words()
    assert {"/view/talk?world=salt_market", "/view/worlds/salt_market/events/new"} <= {*shown.links()}
    assert ("There is a world salt_market already" in again.words(), "/view/worlds/salt_market" in again.links()) == (
        True,
        True,
    )
    assert (event.status_code, events) == (303, ["the_tide_took_the_pier", "rope"])
    assert "/view/worlds/salt_market/events/rope/edit" in twice.links()
    assert "Saved: lorebook salt ." in lore.words()
    assert ("time", "1312-04-03T10:15:00") in following.inputs


def test_what_is_refused_keeps_what_was_written_with_the_reason_beside_its_field(client: TestClient) -> None:
    sent = {**TABLE.event, "world": "Far Shore", "text": "", "location": "The <old> pier"}
    shown = page(client.post("/view/new-world", data={**sent, "do": "save"}), 422)
    secret = client.post(
        "/admin/keys", json={"name": "ada", "scopes": ["author", "read"], "bounds": {"worlds": ["quay"]}}
    ).json()["secret"]
    bound = {"Authorization": f"Bearer {secret}"}
    foreign = client.post("/view/new-world", data={**sent, "text": "x", "do": "save"}, headers=bound)
    other = client.post("/view/worlds/far_shore/events/new", data={**sent, "do": "save"}, headers=bound)
    own = client.post("/view/new-world", data={**sent, "world": "Quay", "text": "x", "do": "save"}, headers=bound)
    unknown = client.get("/view/worlds/nowhere/lorebooks/new")
    assert {("location", "The <old> pier"), ("world", "Far Shore")} <= {*shown.inputs}
    assert ("textarea", "aria-invalid", "true") in shown.attributes
    assert "In a sentence, as somebody in the world would put it. Write what happens." in shown.words()
    assert [one.status_code for one in (foreign, other, own, unknown)] == [403, 403, 303, 404]
    assert (
        "this key is bound to worlds quay" in page(foreign, 403).words(),
        "far_shore" in page(foreign, 403).words(),
    ) == (
        True,
        True,
    )
