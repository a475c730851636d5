"""OpenEnv's web socket of a live gateway: every environment's right answers, keys, limits, lost clients, stopping."""

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from tests.support.gateways import Gateways
from tests.support.openenv import PREFIX, connected, right_actions
from tests.support.serving import serving
from tests.support.tables import read_table

KEY = "gw_of-these-tests"
BEARER = {"Authorization": f"Bearer {KEY}"}
SEED = 11


@pytest.fixture(scope="module")
def url(gateways: Gateways) -> str:
    return gateways.of().url


@pytest.fixture(scope="module")
def narrow(gateways: Gateways) -> str:
    """With a key, and room for little."""
    settings = {
        "ATROPOS_ENVS_API_KEY": KEY,
        "ATROPOS_ENVS_MAX_BODY_BYTES": "4096",
        "ATROPOS_ENVS_COMPAT__OPENENV_SESSIONS": "2",
        "ATROPOS_ENVS_COMPAT__OPENENV_IDLE_SECONDS": "1.5",
    }
    return gateways.of(**settings).url


@pytest.mark.parametrize("name", ["gsm8k", "npc_arena", "tool_agent"])
def test_what_is_right_is_paid(url: str, name: str) -> None:
    gold = right_actions(name, SEED)
    with connected(url, name) as (talk, _):
        talk.told("reset", seed=SEED)
        for action in gold or [{"text": "Well met."}] * 100:
            stepped = talk.told("step", **action)
            if stepped["done"]:
                break
    low = 1.0 if gold else 0.0
    assert (stepped["done"], low <= stepped["reward"] <= 1.0) == (True, True)


@pytest.mark.parametrize(
    ("path", "headers", "opened"),
    [
        ("http://", BEARER, True),
        (f"http://anyone:{KEY}@", None, True),
        ("http://", {}, False),
        (f"http://{KEY}:anyone@", None, False),
        ("http://", BEARER | {"Origin": "http://elsewhere.example"}, False),
    ],
)
def test_a_key_is_given_with_the_handshake(
    narrow: str, path: str, headers: dict[str, str] | None, opened: bool
) -> None:
    address = narrow.replace("http://", path)
    try:
        with connected(address, "gsm8k", additional_headers=headers) as (talk, _):
            answer = talk.told("state")["environment"]
    except InvalidStatus as refused:
        answer = refused.response.status_code
    assert answer == ("gsm8k" if opened else 403)


def ending(socket: ClientConnection) -> tuple[int, str]:
    """Code and reason with which the gateway closes it."""
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=20)
    after = closed.value.rcvd
    assert after is not None
    return int(after.code), after.reason


def test_sessions_beyond_the_capacity_are_refused_in_words(narrow: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            talk, _socket = stack.enter_context(connected(narrow, "gsm8k", additional_headers=BEARER))
            talk.told("state")
        with connected(narrow, "gsm8k", additional_headers=BEARER) as (talk, socket):
            refused = json.loads(talk.receive())["data"]
            ended, _ = ending(socket)
    assert (refused["code"], refused["max_sessions"], ended) == ("CAPACITY_REACHED", 2, 1013)


def test_who_says_nothing_for_long_is_disconnected(narrow: str) -> None:
    with connected(narrow, "gsm8k", additional_headers=BEARER) as (_, socket):
        assert ending(socket) == (1001, "idle timeout")


def test_a_message_beyond_the_limit_and_a_close_frame_end_the_session(narrow: str) -> None:
    with connected(narrow, "gsm8k", additional_headers=BEARER) as (talk, socket):
        talk.told("reset", seed=1)
        talk.send("x" * 5_000)
        assert ending(socket)[0] == 1009
    with connected(narrow, "gsm8k", additional_headers=BEARER) as (talk, socket):
        talk.send('{"type": "close"}')
        assert ending(socket)[0] == 1000


def sessions(url: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("atropos_envs_openenv_sessions ")).split()[1])


def test_who_left_and_comes_again_has_the_same_place_in_its_group(url: str) -> None:
    group: dict[str, Any] = {"run": "lost", "seed": 3, "group_size": 2, "gather_seconds": 60}
    with connected(url, "gsm8k") as (talk, socket):
        talk.told("reset", **group)
        talk.send(json.dumps({"type": "step", "data": {"text": "#### 1"}}))
        time.sleep(0.5)
        socket.socket.close()
    deadline = time.monotonic() + 20
    while sessions(url) and time.monotonic() < deadline:
        time.sleep(0.05)

    def ended(text: str) -> Any:
        with connected(url, "gsm8k") as (talk, _):
            talk.told("reset", **group)
            return talk.told("step", text=text)["metadata"]

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(ended, ["#### 1", "#### 2"]))
    (kept,) = httpx.get(f"{url}/groups", params={"run": "lost"}).json()["groups"]
    assert (sessions(url), kept["size"], [one["group_flags"] for one in told]) == (0, 2, [[], []])


@pytest.mark.slow
def test_stopping_closes_sessions_and_keeps_what_is_being_scored(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway, connected(gateway.url, "gsm8k") as (talk, socket):
        talk.told("reset", run="last", seed=3, group_size=2, gather_seconds=2)
        talk.send(json.dumps({"type": "step", "data": {"text": "#### 1"}}))
        time.sleep(0.5)
        gateway.process.terminate()
        ended, _ = ending(socket)
        gateway.process.wait(30)
    with serving(tmp_path) as gateway:
        (kept,) = httpx.get(f"{gateway.url}/groups", params={"run": "last"}).json()["groups"]
    assert (ended, kept["outcome"]) == (1012, "scored")


def test_over_http_whoever_asks_keeps_the_episode(url: str) -> None:
    base = f"{url}{PREFIX}/mastermind"
    begun = httpx.post(f"{base}/reset", json={"seed": SEED}).json()
    task_id = begun["observation"]["task_id"]
    gold = right_actions("mastermind", SEED)
    wrong = {"role": "assistant", "content": "I pass."}
    first = httpx.post(f"{base}/step", json={"action": {"text": "I pass."}, "task_id": task_id}).json()
    so_far = [wrong, *first["observation"]["messages"]]
    body = {"action": {"text": gold[0]["text"]}, "task_id": task_id, "messages": so_far, "request_id": "r1"}
    ended = httpx.post(f"{base}/step", json=body).json()
    lost = httpx.post(f"{base}/step", json={"action": {"text": "1"}})
    assert (first["reward"], first["done"], ended["reward"], ended["done"], lost.status_code) == (
        None,
        False,
        0.875,
        True,
        422,
    )


OVER_HTTP = read_table(__file__, "over_http.yaml", dict[str, Any])


@pytest.mark.parametrize("asked", OVER_HTTP["answered"])
def test_what_else_openenv_asks_over_http(url: str, asked: dict[str, Any]) -> None:
    address = f"{url}{PREFIX}/gsm8k/{asked['path']}"
    reply = httpx.post(address, json=asked["body"]) if "body" in asked else httpx.get(address)
    assert (reply.status_code, reply.json()) == (200, asked["answer"])


def test_an_environment_describes_itself_as_a_server_of_its_own(url: str) -> None:
    document = httpx.get(f"{url}{PREFIX}/gsm8k/openapi.json").json()
    about = httpx.get(f"{url}{PREFIX}/gsm8k/metadata").json()
    named = [one["name"] for item in document["paths"].values() for op in item.values() for one in op["parameters"]]
    assert (document["info"], {"/reset", "/step", "/state"} - set(document["paths"]), set(named), about["name"]) == (
        {"title": "gsm8k over OpenEnv's interface", "version": "1.0.0"},
        set(),
        {"name"},
        "gsm8k",
    )


def test_what_is_wrong_over_http_is_a_problem(url: str) -> None:
    replies = [httpx.post(f"{url}{PREFIX}/gsm8k/{path}", json=body) for path, body, _ in OVER_HTTP["refused"]]
    told = [(reply.status_code, reply.headers["content-type"]) for reply in replies]
    assert told == [(status, "application/problem+json") for *_, status in OVER_HTTP["refused"]]
