"""Talking to characters over the whole service, with a policy on a loopback socket."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from app.envs.npc_arena.environment import NpcArena
from app.inference.connection import Connection, Credentials, Endpoint
from app.inference.policies import ChatPolicyServer
from app.settings import PolicySettings, Settings
from app.toolkit.templates import find_packaged_folder
from tests.support.chat_server import ChatServer, Received, Reply, serving
from tests.support.event_loop import closed_after
from tests.support.outline import page
from tests.support.playground import serve_here
from tests.support.talking import NOTICED, build_tavern_body, speaks, write_stream

SHEETS = ("hob_tarrant", "ottoline_vesk")
EVENTS = [
    {"id": "rope", "time": "1312-04-03T09:15:00Z", "text": "The rope of the ferry broke.", "importance": 7},
    {"id": "bridge", "time": "1312-04-03T11:00:00Z", "text": "A bridge is ordered.", "visibility": ["ottoline_vesk"]},
]
BOOK = {"name": "Shore", "entries": [{"id": "rope", "keys": ["ferry"], "content": "The ferry runs on a rope."}]}
MODEL = "hob_tarrant/shore@warm"
ASKED = ("user", "Is the ferry running?")
HEADERS = {"X-Play-Kind": "turn", "X-Play-Dropped-System-Messages": "10"}


@pytest.fixture(scope="module")
def policy() -> Iterator[ChatServer]:
    with serving(speaks()) as server:
        yield server


@pytest.fixture(scope="module")
def client(policy: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("play")
    database, sheets = folder / "store.db", folder / "sheets"
    sheets.mkdir()
    for name in SHEETS:
        shutil.copy(find_packaged_folder("character_sheets") / f"{name}.yaml", sheets)
    policies = {name: PolicySettings(base_url=policy.url, model=f"{name}-model") for name in ("warm", "cold")}
    policies["gone"] = PolicySettings(base_url="http://127.0.0.1:9/v1", model="gone")
    settings = Settings(database_url=f"sqlite:///{database}", character_sheets=sheets, policies=policies)
    with serve_here(settings, NpcArena) as client:
        client.post("/worlds/shore/events", json={"events": EVENTS}).raise_for_status()
        client.put("/worlds/shore/lorebooks/shore", json=BOOK).raise_for_status()
        yield client


def complete(client: TestClient, body: dict[str, object]) -> list[dict[str, Any]]:
    """The events of a streamed reply."""
    answer = client.post("/play/v1/chat/completions", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    lines = answer.content.split(b"\n\n")
    assert (lines[-2:], b"\r" in answer.content) == ([b"data: [DONE]", b""], False)
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-2]]


def say(client: TestClient, *said: tuple[str, str], **more: Any) -> dict[str, Any]:
    """What is told with the end of a reply."""
    told: dict[str, Any] = complete(client, build_tavern_body(MODEL, *said, **more))[-1]["play"]
    return told


def show_text(events: list[dict[str, Any]]) -> str:
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])


@pytest.mark.parametrize("at", ["", "1312-04-03T08:00:00Z"])
def test_the_policy_receives_the_messages_of_the_context(client: TestClient, policy: ChatServer, at: str) -> None:
    """Byte for byte, with the narrator's line where it was."""
    odd = "A \u201cbell\u201d \U0001f9d9 rings."
    said = (ASKED, ("assistant", "No."), ("system", odd), ("user", "Why?"))
    body = build_tavern_body(f"hob_tarrant/shore/{at}@warm" if at else MODEL, *said, user="context", seed=7)
    answer = client.post("/play/v1/chat/completions", json=body)
    told = [ASKED, ("assistant", "No."), ("user", f"[{odd}]\nWhy?")]
    moment = {"character": "hob_tarrant", "conversation": [{"role": role, "content": text} for role, text in told]}
    context = client.post("/worlds/shore/context", json=moment | ({"as_of": at} if at else {})).json()
    received = policy.received[-1].body
    assert json.dumps(received.pop("messages")) == json.dumps(context["messages"])
    assert received == {
        **{"model": "warm-model", "stream": True, "temperature": 1, "max_tokens": 300, "seed": 7},
        **{"presence_penalty": 0, "frequency_penalty": 0, "top_p": 1},
        "stream_options": {"include_usage": True},
    }
    assert HEADERS.items() <= {name.title(): value for name, value in answer.headers.items()}.items()


def test_a_stream_has_one_id_and_tells_at_its_end_what_gates_notice(client: TestClient) -> None:
    events = complete(client, build_tavern_body(MODEL, ("user", NOTICED)))
    kept = client.get(f"/play/v1/turns/{events[-1]['play']['turn']}").json()
    heads = {(event["id"], event["object"], event["created"], event["model"]) for event in events}
    text = show_text(events)
    flags = events[-1]["play"]["replies"][0]["flags"]
    assert (len(heads), [event for event in events[:-1] if "play" in event]) == (1, [])
    assert (text.strip(), "breaks_character" in flags) == ("As an AI language model I cannot ferry you.", True)
    assert ([one["text"] for one in kept["replies"]], kept["replies"][0]["flags"]) == ([text], flags)
    assert (events[-1]["choices"][0]["finish_reason"], events[0]["model"]) == ("stop", MODEL)


def test_asking_again_adds_alternates_of_any_policy_to_one_turn(client: TestClient) -> None:
    said = (("user", "Who are you?"),)
    first, second = say(client, *said), say(client, *said)
    cold = complete(client, build_tavern_body("hob_tarrant/shore@cold", *said))[-1]["play"]
    other = say(client, *said, user="somebody else")
    kept = client.get(f"/play/v1/turns/{first['turn']}").json()
    hidden = client.get(f"/play/v1/turns/{other['turn']}")
    theirs = client.get(f"/play/v1/turns/{other['turn']}", params={"user": "somebody else"}).json()
    assert {first["turn"], second["turn"], cold["turn"]} == {kept["turn_id"]} != {other["turn"]}
    found = [(one["policy"], one["model"]) for one in kept["replies"]]
    assert found == [*[("warm", "warm-model")] * 2, ("cold", "cold-model")]
    told = hidden.status_code, theirs["player"] != kept["player"], "somebody" in json.dumps(theirs)
    assert told == (404, True, False)


def test_a_better_reply_is_exported_with_consent_alone(client: TestClient) -> None:
    said = (("user", "Which way?"),)
    turn, better = (say(client, *said)["turn"], say(client, *said)["replies"][0]["id"])
    path = f"/play/v1/turns/{turn}/better"
    silent = client.post(path, json={"reply": better}).json()
    before = client.get("/export", params={"shape": "labels"}).text
    client.post(path, json={"reply": better, "consent": True}).raise_for_status()
    after = client.get("/export", params={"shape": "labels"}).text
    other = silent["replies"][0]["reply_id"]
    chosen = [silent["replies"][0]["text"], silent["replies"][1]["text"]]
    client.post(path, json={"reply": other, "consent": True}).raise_for_status()
    changed = client.get("/export", params={"shape": "labels"}).text
    client.post(path, json={"reply": better}).raise_for_status()
    withdrawn = client.get("/export", params={"shape": "labels"}).text
    assert [one["better"] for one in silent["replies"]] == [False, True]
    told = [text.count("Which way?") for text in (before, after, changed, withdrawn)]
    assert (told, chosen[0] != chosen[1], after != changed) == ([0, 1, 1, 0], True, True)


def test_a_kept_scene_is_served_with_its_example(client: TestClient) -> None:
    told = say(client, ASKED, ("assistant", "No."), ("system", "The bell of Reedgate rings."))
    path = f"/play/v1/turns/{told['turn']}/keep"
    kept = client.post(path, json={"as": "example", "reply": told["replies"][0]["id"]}).json()["scene"]
    again = client.post(path, json={"as": "scene"}).json()["scene"]
    wanted = {"batch_size": 100, "cursor": 0, "params": {"scenes": "by_hand"}}
    tasks = client.post("/envs/npc_arena/next-batch", json=wanted).json()["tasks"]
    served = [task for task in tasks if task["metadata"]["scene"] == kept["id"]]
    assert (kept["exemplar"][:15], again["exemplar"]) == ("The rope broke,", None)
    assert {one["messages"][-1]["content"] for one in served} == {"[The bell of Reedgate rings.]"}
    assert "The rope of the ferry broke." in served[0]["messages"][0]["content"]


def test_a_continuation_follows_the_beginning_and_is_kept_whole(client: TestClient, policy: ChatServer) -> None:
    told = say(client, ("user", "And now?"), ("assistant", "Well, as I said:"))
    received = policy.received[-1].body
    kept = client.get(f"/play/v1/turns/{told['turn']}").json()
    assert received["messages"][-1] == {"role": "assistant", "content": "Well, as I said:"}  # type: ignore[index]
    assert (received["continue_final_message"], told["kind"]) == (True, "continue")
    assert kept["replies"][0]["text"].startswith("Well, as I said:The rope broke")


def test_helpers_pass_as_they_are_and_nothing_is_kept_of_them(client: TestClient, policy: ChatServer) -> None:
    """Nor of what is not to be stored. A whole reply has the form of OpenAI's."""
    body = build_tavern_body(MODEL, ASKED, control="Summarise the chat.", stream=False)
    answer = client.post("/play/v1/chat/completions", json=body)
    assert policy.received[-1].body["messages"] == body["messages"]
    assert answer.json()["play"] == {"kind": "quiet", "dropped_system_messages": 0}
    secret = build_tavern_body(MODEL, ("user", "A secret."), store=False, stream=False)
    whole = client.post("/play/v1/chat/completions", json=secret).json()
    assert (whole["object"], whole["model"], whole["usage"]["total_tokens"]) == ("chat.completion", MODEL, 12)
    assert whole["choices"][0]["message"]["content"].startswith("The rope broke")
    assert (whole["play"]["turn"], whole["play"]["replies"][0]["id"]) == (None, None)


def test_players_remove_what_they_said(client: TestClient) -> None:
    turns = [say(client, ("user", text), user="leaver")["turn"] for text in ("One.", "Two.", "Three.")]
    removed = [
        client.delete(f"/play/v1/turns/{turns[0]}").json()["removed"],
        client.delete(f"/play/v1/turns/{turns[0]}", params={"user": "leaver"}).json()["removed"],
        client.delete("/play/v1/turns", params={"user": "leaver"}).json()["removed"],
    ]
    assert removed == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"model": "nobody@warm"}, 404, "there is no character 'nobody'"),
        ({"model": "hob_tarrant@none"}, 404, "there is no policy 'none'"),
        ({"model": "hob_tarrant/nowhere@warm"}, 404, "there is no world 'nowhere'"),
        ({"model": "hob_tarrant/shore/noon@warm"}, 422, "is no time such as"),
        ({"model": MODEL, "play": {"world": "other"}}, 422, "the model's name says 'shore'"),
        ({"model": MODEL, "messages": []}, 422, "nobody says anything"),
        ({"model": MODEL, "messages": [{"role": "user", "content": "x" * 4001}]}, 422, "at most 4000 characters"),
        ({"model": "hob_tarrant@gone"}, 503, "the policy gone does not answer"),
    ],
)
def test_errors_before_the_first_byte_have_a_status_and_a_reason(
    client: TestClient, change: dict[str, object], status: int, words: str
) -> None:
    answer = client.post("/play/v1/chat/completions", json={**build_tavern_body(MODEL, ASKED), **change})
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True)


def test_models_are_characters_with_policies_and_worlds(client: TestClient) -> None:
    names = [one["id"] for one in client.get("/play/v1/models").json()["data"]]
    assert (names[0], MODEL in names, len(names)) == ("hob_tarrant@warm", True, len(SHEETS) * 3 * 2)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"error": {"message": "The prompt is too long."}}', 400, "The prompt is too long."),
        (b'{"error": {"message": "wrong key sk-1234567"}}', 401, "answers 401: wrong key \u2026"),
        (b"<html>", 502, "answers 502"),
    ],
)
def test_a_policys_failure_before_its_first_word_is_an_error(body: bytes, status: int, words: str) -> None:
    with pytest.raises(Exception, match=words):
        asyncio.run(stream_texts(lambda number, received: Reply(body, status=status)))


def test_a_policys_failure_amid_a_reply_ends_the_stream() -> None:
    """A server that cannot stream is read whole."""
    texts: list[str] = []
    cut = write_stream("The rope", end="").rpartition(b"data:")[0]
    with pytest.raises(Exception, match="broke off"):
        asyncio.run(stream_texts(lambda number, received: Reply(cut), texts))

    def reply(number: int, received: Received) -> Reply:
        return speaks("Aye.")(number, Received("", "", {}, {**received.body, "stream": False}))

    asyncio.run(stream_texts(reply, texts))
    assert ("".join(texts[:-1]), texts[-1]) == ("The rope ", "Aye. (0)")


async def stream_texts(script: Any, texts: list[str] | None = None) -> None:
    with serving(script) as server:
        async with closed_after(build_policy(server.url)) as policy:
            stream = await policy.stream({"messages": [{"role": "user", "content": "Hob?"}]})
            async for event in stream:
                if texts is not None:
                    texts.append(event["choices"][0]["delta"].get("content") or "")  # type: ignore[index,call-overload,union-attr,arg-type]
            await stream.close()


def build_policy(url: str) -> ChatPolicyServer:
    return ChatPolicyServer(
        "warm",
        "model",
        Connection(Endpoint(url, Credentials(SecretStr("sk-1234567")))),
        temperature=1.0,
        max_output_tokens=64,
        deadline_seconds=20.0,
        extra_body={},
        continue_body={},
        max_concurrency=1,
    )


async def test_a_client_that_leaves_breaks_the_policys_work_off() -> None:
    left = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + write_stream("Aye", end=""))
        while await reader.read(1000):
            pass
        writer.close()
        left.set()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    policy = build_policy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    for _ in range(2):  # the second finds a free place
        stream = await policy.stream({"messages": []})
        await stream.close()
        await asyncio.wait_for(left.wait(), 20)
        left.clear()
    await policy.close()
    server.close()


def test_a_players_name_that_is_none_is_refused(client: TestClient) -> None:
    form = {"character": "hob_tarrant", "policy": "warm", "player_name": '"><script>', "line": "x"}
    assert "a name may contain only letters" in page(client.post("/view/talk/say", data=form), 422).words()


def test_a_page_without_its_script_goes_on_from_the_chosen_reply(client: TestClient, policy: ChatServer) -> None:
    said = [{"role": "user", "content": "One\nline."}]
    form = {"character": "hob_tarrant", "policy": "warm", "conversation": json.dumps(said), "store": "false"}
    chosen = json.dumps({"role": "assistant", "content": "Two\nlines."})
    shown = page(client.post("/view/talk/say", data={**form, "go_on": chosen, "line": "And three."}))
    received = policy.received[-1].messages[1:]
    assert [one["content"] for one in received] == ["One\nline.", "Two\nlines.", "And three."]
    assert "This one is better" not in shown.words()
