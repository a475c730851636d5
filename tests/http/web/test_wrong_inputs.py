"""Wrong requests to the whole service: each is answered with a sentence that says what was given and what is wanted."""

import time
from collections.abc import Iterator

import pytest
from pydantic import JsonValue
from starlette.testclient import TestClient

from app.domain.values import Frozen
from app.main.application import create_app
from app.main.components import discover
from app.settings import Settings
from tests.support.tables import read_table

LONG = "leak-me-not" * 100


class WrongRequest(Frozen):
    request: str
    body: JsonValue = None
    says: str
    status: int = 422


TABLE = read_table(__file__, "wrong_inputs.yaml", tuple[WrongRequest, ...])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    store = tmp_path_factory.mktemp("wrong") / "store.db"
    served = {name: kind for name, kind in discover().items() if name in ("gsm8k", "npc_arena")}
    app = create_app(Settings(database_url=f"sqlite:///{store}", api_key="key"), environments=served)
    headers = {"Authorization": "Bearer key"}
    with TestClient(app, base_url="http://127.0.0.1:8000", headers=headers) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.05)
        yield client


@pytest.mark.parametrize("wrong", TABLE, ids=lambda wrong: wrong.request)
def test_a_wrong_request_is_answered_in_words(client: TestClient, wrong: WrongRequest) -> None:
    method, path = wrong.request.split(" ", 1)
    reply = client.request(method, path, json=wrong.body)
    assert (reply.status_code, reply.json()["detail"]) == (wrong.status, wrong.says)


def test_a_value_is_quoted_short_and_a_secret_never(client: TestClient) -> None:
    path = "/envs/gsm8k/next-batch"
    told = [client.post(path, json={"lease_seconds": LONG}), client.post(path, json={"select": {"api_key": "hunter2"}})]
    assert [reply.json()["detail"] for reply in told] == [
        f'`body.lease_seconds`: "{LONG[:60]}…" (1100 characters) was given; wanted is a number from 1 to 86400',
        "`body.select.api_key`: wanted is a list",
    ]
