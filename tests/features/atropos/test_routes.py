"""Atropos 0.4.0's wire, body by body, and what the original does wrong."""

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.atropos import ENVIRONMENT, FIELDS, JSON, TRAINER, group, large_group, numbers
from tests.support.atropos_gateway import LIMIT, PREFIX, ROOT_PORT, app_on, client_of, started, status_env
from tests.support.tables import read_table


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_of(app_on(tmp_path_factory.mktemp("atropos"))) as client:
        yield client


RUNS = itertools.count()


@pytest.fixture
def client(served: TestClient) -> TestClient:
    """At the prefix of a run of the test's own."""
    served.base_url = f"http://127.0.0.1:8000{PREFIX}/run{next(RUNS)}"
    return served


def test_before_a_trainer_registers(client: TestClient) -> None:
    example: JSON = {key: [] for key in (*FIELDS[:5], "generation_params", "inference_logprobs", "messages", "images")}
    told = {path: client.get(path).json() for path in ("", "wandb_info", "info", "batch", "latest_example", "status")}
    assert told == {
        "": {"message": "AtroposLib API"},
        "wandb_info": {"group": None, "project": None},
        "info": {"batch_size": -1, "max_token_len": -1},
        "batch": {"status": "error", "message": "Trainer not registered. Call /register first.", "batch": []},
        "latest_example": example,
        "status": {"current_step": 0, "queue_size": 0},
    }


def test_after_a_trainer_registered(client: TestClient) -> None:
    uuid = client.post("register", json=TRAINER).json()
    waiting = client.post("register-env", json=ENVIRONMENT).json()
    told = {path: client.get(path).json() for path in ("wandb_info", "info", "batch", "status")}
    assert (list(uuid), uuid["uuid"] > 2**64, waiting, told) == (
        ["uuid"],
        True,
        {"status": "wait for trainer to start"},
        {
            "wandb_info": {"group": "group", "project": "project"},
            "info": {"batch_size": 16, "max_token_len": 512},
            "batch": {"batch": None},
            "status": {"current_step": 0, "queue_size": 0},
        },
    )


def test_environments_join_with_dense_ids_and_leave(client: TestClient) -> None:
    joined = started(client, environments=2, starting_step=7)
    left = [client.post("disconnect-env", json={"env_id": env_id}).json() for env_id in (1, 2)]
    common = {
        "status": "success",
        "checkpoint_dir": "checkpoints",
        "starting_step": 7,
        "checkpoint_interval": 5,
        "num_steps": 100,
    }
    assert (joined, left[0], left[1]["status"], list(left[1])) == (
        [{**common, "env_id": 0, "wandb_name": "gsm8k_0"}, {**common, "env_id": 1, "wandb_name": "gsm8k_1"}],
        {"status": "success"},
        "failure",
        ["status", "error"],
    )


def test_a_group_comes_back_with_all_its_keys(client: TestClient) -> None:
    full = group(
        1,
        16,
        advantages=[[0.5] * 3] * 16,
        ref_logprobs=[[-1.0] * 3] * 16,
        inference_logprobs=[[1.0, -0.25, -3.5]] * 16,
        messages=[[{"role": "user", "content": "Olá \u0000 😀", "reward": 1}]] * 16,
        generation_params={"temperature": 0.7},
        overrides=[{"set_advantage_to_zero": True}] * 16,
        group_overrides={"group_size": 4},
        images=None,
        env_id=3,
        distill_token_ids=[[[1, 2]] * 3] * 16,
        distill_logprobs=[[[-0.5, -1.5]] * 3] * 16,
    )
    client.post("register", json=TRAINER)
    received = client.post("scored_data", json={**full, "unknown": 1}).json()
    plain = client.post("scored_data", json=group(2, 16)).json()
    batches = [client.get("batch").json() for _ in range(3)]
    absent: JSON = {name: None for name in FIELDS} | group(2, 16) | {"inference_logprobs": []}
    assert (received, plain, batches) == (
        {"status": "received"},
        {"status": "received"},
        [{"batch": [full]}, {"batch": [absent]}, {"batch": None}],
    )
    assert list(batches[1]["batch"][0]) == FIELDS


def test_a_list_of_groups(client: TestClient) -> None:
    received = client.post("scored_data_list", json=[group(1), group(2), group(3, 4)]).json()
    empty = client.post("scored_data_list", json=[]).json()
    assert (received, empty, client.get("latest_example").json()["tokens"]) == (
        {"status": "received", "groups_processed": 3},
        {"status": "received", "groups_processed": 0},
        group(3, 4)["tokens"],
    )


def test_what_environments_are_told_of_the_queue(client: TestClient) -> None:
    started(client)
    client.post("register-env", json={**ENVIRONMENT, "weight": 3.0, "min_batch_allocation": 0.25})
    for number in range(3):
        client.post("scored_data", json=group(number, env_id=0))
    client.post("scored_data", json=group(9, env_id=1))
    assert [status_env(client, env_id).json() for env_id in (0, 1)] == read_table(
        __file__, "queue_told.yaml", list[Any]
    )


def test_statuses_of_what_the_original_refuses(client: TestClient) -> None:
    started(client)
    wrong = {
        "trainer without a field": client.post("register", json={"batch_size": 1}),
        "environment without a name": client.post("register-env", json={**ENVIRONMENT, "desired_name": None}),
        "no JSON": client.post("scored_data", content=b"{"),
        "not a list": client.post("scored_data_list", json=group(1)),
        "id as a query": client.get("status-env", params={"env_id": 0}),
        "corrupt gzip": client.post("scored_data", content=b"\x1f\x8bx", headers={"Content-Encoding": "gzip"}),
        "message without a role": client.post("scored_data", json=group(1, 1, messages=[[{"content": "x"}]])),
    }
    found = {name: reply.status_code for name, reply in wrong.items()}
    assert found == {**dict.fromkeys(wrong, 422), "corrupt gzip": 400}


NAN = '{"tokens":[[1]],"masks":[[1]],"scores":[NaN]}'


REFUSED = [
    (json.dumps(group(1) | {"masks": [[1, 2, 3]]}), "body.masks"),
    (json.dumps(group(1) | {"masks": [[1, 2, 3]] * 7 + [[1]]}), "body.masks[7]"),
    (json.dumps(group(1) | {"scores": [1.0]}), "body.scores"),
    (json.dumps({"tokens": [], "masks": [], "scores": []}), "body.tokens"),
    (json.dumps({"tokens": [[]], "masks": [[]], "scores": [1]}), "body.tokens[0]"),
    (json.dumps(group(1, inference_logprobs=[[0.5]] * 8)), "body.inference_logprobs[0]"),
    (json.dumps(group(1, advantages=[[0.5] * 3])), "body.advantages"),
    (json.dumps(group(1, overrides=[{}])), "body.overrides"),
    (json.dumps(group(1, 1, distill_token_ids=[[[1]] * 3], distill_logprobs=[[[]] * 3])), "body.distill_logprobs"),
    (NAN, "body.scores[0]"),
    (NAN.replace("NaN", "1e999"), "body.scores[0]"),
    (NAN.replace("NaN", "1")[:-1] + ',"generation_params":{"t":NaN}}', "body.generation_params.t"),
]


def test_a_group_that_would_break_a_batch_is_refused_at_the_door_by_name(client: TestClient) -> None:
    """The original says `received`, then loses the batch, and its `/latest_example` answers 500 for ever."""
    client.post("register", json={**TRAINER, "batch_size": 1})
    told = []
    for body, _ in REFUSED:
        posts = (("scored_data", body), ("scored_data_list", f"[{body}]"))
        replies = [
            client.post(path, content=text, headers={"Content-Type": "application/json"}) for path, text in posts
        ]
        told += [(one.status_code, [problem["field"] for problem in one.json()["errors"]]) for one in replies]
    expected = [[(422, [field]), (422, [field.replace("body", "body[0]", 1)])] for _, field in REFUSED]
    assert told == [one for pair in expected for one in pair]
    assert (client.get("batch").json(), client.get("latest_example").status_code) == ({"batch": None}, 200)


def test_gzip_both_ways_and_no_further_than_a_limit(client: TestClient) -> None:
    client.post("register", json=TRAINER)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    bodies = [
        gzip.compress(json.dumps(large_group(1, 16)).encode()),
        gzip.compress(json.dumps(group(2)).encode())[:-4],
        gzip.compress(b" " * (LIMIT + 1)),
        gzip.compress(json.dumps(group(3, 4)).encode()) + gzip.compress(b" "),
    ]
    posted = [client.post("scored_data", content=body, headers=headers) for body in bodies]
    elsewhere = client_of(client.app, "").post("/envs/any/score", content=bodies[0], headers=headers)  # type: ignore[arg-type]
    packed = client.get("batch", headers={"Accept-Encoding": "gzip"})
    client.post("scored_data", json=large_group(4, 16))
    plain = client.get("batch", headers={"Accept-Encoding": "identity"})
    assert [reply.status_code for reply in (*posted, elsewhere)] == [200, 400, 413, 200, 415]
    assert posted[1].text == "Invalid gzip payload"
    assert [reply.headers.get("Content-Encoding") for reply in (packed, plain)] == ["gzip", None]
    assert packed.json()["batch"][0]["tokens"] == large_group(1, 16)["tokens"]


def test_the_default_sizes_of_the_shipped_example_make_batches(client: TestClient) -> None:
    """Batches of 12 and groups of 8: null for ever in the original."""
    client.post("register", json={**TRAINER, "batch_size": 12})
    client.post("scored_data_list", json=[group(number, overrides=[{"n": n} for n in range(8)]) for number in range(3)])
    batches = [client.get("batch").json()["batch"] for _ in range(2)]
    parts = [[(each["tokens"][0][0], len(each["tokens"]), each["scores"]) for each in batch] for batch in batches]
    eight = [float(n) for n in range(8)]
    assert parts == [[(0, 8, eight), (1, 4, eight[:4])], [(1, 4, eight[4:]), (2, 8, eight)]]
    assert batches[1][0]["overrides"] == [{"n": n} for n in range(4, 8)]


def test_reset_forgets_its_run_and_no_other(tmp_path: Path) -> None:
    with client_of(app_on(tmp_path)) as one, client_of(one.app, f"{PREFIX}/other") as other:  # type: ignore[arg-type]
        for client in (one, other):
            started(client)
            client.post("scored_data", json=group(1))
        early = client_of(one.app, f"{PREFIX}/new").get("reset_data")  # type: ignore[arg-type]
        reset = one.get("reset_data")
        unknown = status_env(one, 0).status_code
        told = [client.get("status").json()["queue_size"] for client in (one, other)]
        again = started(one)[0]["env_id"], started(other)[0]["env_id"]
    found = reset.text, reset.headers["Content-Type"], early.status_code
    assert found == ("Reset successful", "text/plain; charset=utf-8", 200)
    assert (unknown, told, again) == (404, [0, 1], (0, 1))


def test_a_run_has_a_port_of_its_own_at_the_root(tmp_path: Path) -> None:
    """To which Axolotl's plugin sends these requests in this order: it asks for batches from the start."""
    app = app_on(tmp_path, atropos_run="red", atropos_ports={"blue": 8998})
    with client_of(app, "", ROOT_PORT) as red:
        blue, native = client_of(app, "", 8998), client_of(app, "", 8000)
        early = red.get("/batch").json()["batch"]
        red.post("/register", json=TRAINER)
        red.post("/scored_data_list", json=[group(1), group(2)])
        told = [client.get("/info").json()["batch_size"] for client in (red, blue)]
        root = red.get("/").json()
        prefixed = native.get(f"{PREFIX}/red/status").json()
        outside = red.get("/envs").status_code, native.get("/info").status_code
        batch = numbers(red.get("/batch").json())
    assert (early, told, root, prefixed, outside, batch) == (
        [],
        [16, -1],
        {"message": "AtroposLib API"},
        {"current_step": 0, "queue_size": 2},
        (404, 404),
        [1, 2],
    )


def test_a_run_is_not_called_anything(client: TestClient) -> None:
    runs = client_of(client.app)  # type: ignore[arg-type]
    assert [runs.get(f"{name}/info").status_code for name in ("batch", "UPPER", "a b", "-x")] == [422] * 4


def test_why_there_is_no_batch_is_said_in_words(client: TestClient) -> None:
    told = [client.get("why").json()]
    client.post("scored_data", json=group(1))
    told.append(client.get("why").json())
    started(client)
    told.append(client.get("why").json())
    client.post("scored_data", json=group(2, env_id=0))
    told.append(client.get("why").json())
    assert [(each["ready"], each["why"]) for each in told] == [
        (False, "No trainer has registered (POST /register). 0 groups (0 sequences) stay in the queue."),
        (False, "No trainer has registered (POST /register). 1 groups (8 sequences) stay in the queue."),
        (False, "The queue has 8 of the 16 sequences of a batch."),
        (True, "A batch is ready."),
    ]
    found = told[3]["queue_size"], told[3]["sequences"], told[1]["notes"]
    assert found == (2, 16, ["No environment has registered (POST /register-env)."])


def test_the_viewer_shows_the_queue(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    with client_of(app) as client:
        empty = client_of(app, "/view").get("atropos").text
        started(client)
        client.post("register-env", json={**ENVIRONMENT, "desired_name": "<b>"})
        client.post("scored_data", json=group(1))
        page = client_of(app, "/view").get("atropos").text
    said = ("The queue has 8 of the 16 sequences of a batch.", "&lt;b&gt;_0", "gsm8k_0")
    found = "No Atropos trainer or environment has registered yet." in empty, [text in page for text in said]
    assert found == (True, [True] * 3)
