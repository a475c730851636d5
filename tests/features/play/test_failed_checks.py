"""Replies before which nothing could be retrieved, and that the gates could not read, over the whole service."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.domain.errors import RetrieverFailed
from app.domain.scores import Score
from app.domain.tasks import Completion, Context, ContextQuery, Task
from app.envs.npc_arena.environment import NpcArena
from app.ports.environment import Tools
from app.settings import PolicySettings, RagSettings, Settings
from app.toolkit.templates import find_packaged_folder
from tests.support.chat_server import serving
from tests.support.outline import page
from tests.support.playground import serve_here
from tests.support.talking import build_tavern_body, speaks

FAILURE = "the library is closed"
BROKE = "the environment's scorer broke; see the log"


class ClosedLibrary:
    async def retrieve(self, query: ContextQuery) -> Context:
        raise RetrieverFailed(FAILURE)


class BrokenArena(NpcArena):
    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        raise ValueError("a secret of the service")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    shutil.copy(find_packaged_folder("character_sheets") / "hob_tarrant.yaml", tmp_path)
    with serving(speaks()) as policy:
        settings = Settings(
            database_url=f"sqlite:///{tmp_path}/store.db",
            character_sheets=tmp_path,
            policies={"warm": PolicySettings(base_url=policy.url, model="warm-model")},
            rag=RagSettings.model_validate({"on_failure": "without"}),
        )
        with serve_here(settings, BrokenArena, retriever=ClosedLibrary()) as client:
            yield client


def test_they_are_told_and_teach_nothing(client: TestClient) -> None:
    body = build_tavern_body("hob_tarrant/shore@warm", ("user", "Is the ferry running?"), stream=False)
    first, told = [client.post("/play/v1/chat/completions", json=body).json()["play"] for _ in "ab"]
    path, reply = f"/play/v1/turns/{told['turn']}", told["replies"][0]
    stored = client.get(path).json()["replies"][1]
    refused = [
        client.post(f"{path}/keep", json={"as": "scene"}),
        client.post(f"{path}/keep", json={"as": "example", "reply": reply["id"]}),
        client.post(f"{path}/better", json={"reply": reply["id"], "consent": True}),
        client.post(f"{path}/judge"),
    ]
    marked = client.post(f"{path}/better", json={"reply": reply["id"]}).json()
    words = page(client.get("/view/talk", params={"turn": told["turn"]})).words()
    found = first["turn"], told["retrieval_failure"], {name: reply[name] for name in ("id", "flags", "unchecked")}
    assert found == (told["turn"], FAILURE, {"id": stored["reply_id"], "flags": [], "unchecked": BROKE})
    assert (stored["unchecked"], stored["retrieval_failure"], stored["flags"]) == (BROKE, FAILURE, [])
    assert {(one.status_code, one.json()["detail"]) for one in refused} == {
        (409, f"nothing could be retrieved for this reply: {FAILURE}")
    }
    seen = [one["better"] for one in marked["replies"]], client.get("/export?shape=labels").text
    assert seen == ([False, True], "")
    assert [words.count(one) for one in (f"Nothing was retrieved for this reply: {FAILURE}", BROKE)] == [2, 2]
    assert "gates notice" not in words
