"""Characters that act: tools for the policy, and calls for the client, told as the standard has it."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import JsonValue
from starlette.testclient import TestClient

from app.domain.tasks import FunctionSpec, ToolSpec
from app.domain.values import Frozen
from app.envs.npc_arena.environment import NpcArena
from app.features.play.replies import CallHolder, OfferedTools, ReplyWriter, read_whole
from app.inference.wire import read_answer
from app.settings import PolicySettings, Settings
from app.toolkit.templates import find_packaged_folder
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats import FORMATS
from tests.support.chat_server import ChatServer, Received, Reply, serving
from tests.support.outline import page
from tests.support.playground import serve_here
from tests.support.tables import read_table

GIVE = {"type": "object", "properties": {"item": {"enum": ["rope", "lamp_oil"]}}, "required": ["item"]}
OFFERED = OfferedTools(
    (
        ToolSpec(function=FunctionSpec(name="give_item", parameters=GIVE)),
        ToolSpec(function=FunctionSpec(name="ring_bell")),
    ),
    most=2,
)


class Acting(Frozen):
    said: tuple[str, ...]
    calls: tuple[JsonValue, ...] = ()
    words: str = ""
    text: str | None = None
    done: tuple[tuple[str, dict[str, JsonValue]], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, list[tuple[str, Mapping[str, JsonValue]]], list[str]]:
        text = self.words if self.text is None else self.text
        return text, [*self.done], [*self.left_out]


TABLE = read_table(__file__, "acting.yaml", dict[str, Acting])


def join(events: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]], list[Any]]:
    """The text, the calls and the finish reasons of a stream, read as clients of the standard do."""
    text, calls, reasons = "", list[dict[str, Any]](), list[Any]()
    for choice in (choice for event in events for choice in event["choices"]):
        text += choice["delta"].get("content") or ""
        for part in choice["delta"].get("tool_calls", ()):
            if part["index"] == len(calls):
                calls.append({"id": part["id"], "type": part["type"], "function": dict(part["function"])})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    return text, calls, reasons


def list_done(calls: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


@pytest.mark.parametrize("acting", TABLE.values(), ids=TABLE)
def test_a_stream_tells_words_at_once_and_calls_at_its_end(acting: Acting) -> None:
    deltas: list[dict[str, Any]] = [{"content": text} for text in acting.said]
    deltas += [{"tool_calls": listed} for listed in acting.calls]
    writer = ReplyWriter("hob@warm", "id", 0, OFFERED)
    events: list[Any] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    at_once: list[Any] = [taken for event in events if (taken := writer.take(event)) is not None]
    (answer,) = writer.list_spoken(1.0)
    told: list[Any] = writer.finish("noticed")
    text, calls, reasons = join([*at_once, *told])
    said = " ".join(text.split())  # where a call was taken out, a stream has told both spaces
    words, done, left_out = acting.told
    found = join(at_once)[0], said, list_done(calls), [*answer.left_out]
    assert found == (acting.words, " ".join(words.split()), done, left_out)
    assert (reasons, told[-1]["play"]) == (["tool_calls" if calls else "stop"], "noticed")
    assert (" ".join(answer.text.split()), [(call.name, call.arguments) for call in answer.calls]) == (
        said,
        list_done(calls),
    )


@pytest.mark.parametrize("acting", TABLE.values(), ids=TABLE)
def test_a_whole_reply_has_the_same_words_and_calls(acting: Acting) -> None:
    listed = [call for event in acting.calls if isinstance(event, list) for call in event]
    message: Any = {"content": "".join(acting.said), "tool_calls": listed}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    answer: Any = read_answer(json.dumps(body).encode())
    said = read_whole(answer, 1.0, OFFERED)
    made: Any = ReplyWriter("hob@warm", "id", 0, OFFERED).complete(answer, said, None)["choices"]
    (choice,) = made
    text, done, left_out = acting.told
    calls = choice["message"].get("tool_calls", [])
    found = (
        " ".join((choice["message"]["content"] or "").split()) or None,
        list_done(calls),
        [*said[0].left_out],
        choice["finish_reason"],
    )
    assert found == (" ".join(text.split()) or None, done, left_out, "tool_calls" if calls else "stop")


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_no_sign_of_a_call_is_told_as_words(form: Any) -> None:
    holder = CallHolder(OFFERED.names)
    written = form.write([ParsedCall(name="give_item", arguments={"item": "rope"})])
    assert "".join(map(holder.feed, written)) == ""


# Over the whole service.

ACTIONS = {
    "allowed": [
        {"name": "give_item", "meaning": "hands a thing over", "parameters": GIVE},
        {"name": "ring_bell", "meaning": "rings for the ferry"},
    ],
    "at_most": 2,
}
CALL = {"id": "own1", "type": "function", "function": {"name": "give_item", "arguments": '{"item": "rope"}'}}
GAME_TOOL = {"name": "ring_bell", "parameters": {"type": "object", "properties": {"loud": {"type": "boolean"}}}}
SAID: list[dict[str, Any]] = [{"role": "user", "content": "A rope, please."}]
GIVEN: list[dict[str, Any]] = [*SAID, {"role": "assistant", "content": "Here.", "tool_calls": [CALL]}]


def act(number: int, received: Received) -> Reply:
    """Gives the rope, or rings with another seed, as a server does that ends such a reply with `stop`."""
    made = {"function": {"name": "ring_bell"}} if received.body.get("seed") == 2 else CALL
    call = {"tool_calls": [{"index": 0, **made}]} if received.body.get("tools") else {}
    usage = {"prompt_tokens": 900, "completion_tokens": 20}
    if not received.body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": "Here.", **call}, "finish_reason": "stop"}
        return Reply(json.dumps({"choices": [choice], "usage": usage}).encode())
    deltas: list[tuple[Any, str | None]] = [({"content": "Here."}, None), (call, None), ({}, "stop")]
    events: list[Any] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas
    ]
    lines = [f"data: {json.dumps(event)}\n\n" for event in (*events, {"choices": [], "usage": usage})]
    return Reply("".join([*lines, "data: [DONE]\n\n"]).encode(), headers={"content-type": "text/event-stream"})


@pytest.fixture(scope="module")
def policy() -> Iterator[ChatServer]:
    with serving(act) as server:
        yield server


@pytest.fixture(scope="module")
def client(policy: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("acting")
    written = find_packaged_folder("character_sheets") / "hob_tarrant.yaml"
    sheet = {**yaml.safe_load(written.read_text(encoding="utf-8")), "actions": ACTIONS}
    (folder / "hob_tarrant.yaml").write_text(yaml.safe_dump(sheet), encoding="utf-8")
    shutil.copy(find_packaged_folder("character_sheets") / "ambrose_tull.yaml", folder)
    settings = Settings(
        database_url=f"sqlite:///{folder}/store.db",
        character_sheets=folder,
        policies={"warm": PolicySettings(base_url=policy.url, model="warm-model", tools=True)},
    )
    with serve_here(settings, NpcArena) as client:
        client.put("/worlds/shore/lorebooks/shore", json={"name": "Shore", "entries": []}).raise_for_status()
        yield client


def ask(client: TestClient, messages: list[dict[str, Any]], **more: Any) -> Any:
    body = {"model": "hob_tarrant@warm", "messages": messages, **more}
    answer = client.post("/play/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not more.get("stream"):
        return answer.json()
    lines = answer.content.split(b"\n\n")
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]


def test_a_character_acts_beside_its_words(client: TestClient, policy: ChatServer) -> None:
    """Calls and measures are kept with the turn, and shown on its page."""
    events = ask(client, SAID, stream=True)
    sent = [tool["function"]["name"] for tool in policy.received[-1].body["tools"]]  # type: ignore[attr-defined]
    told = events[-1]["play"]
    kept = client.get(f"/play/v1/turns/{told['turn']}").json()["replies"][0]
    words = page(client.get("/view/talk", params={"turn": told["turn"]})).words()
    text, calls, reasons = join(events)
    assert (text, list_done(calls), reasons) == ("Here.", [("give_item", {"item": "rope"})], ["tool_calls"])
    assert (sent, [one for one in events if "usage" in one]) == (["give_item", "ring_bell"], [])
    done = [{"name": "give_item", "arguments": {"item": "rope"}, "result": "done"}]
    measured = kept["prompt_tokens"], kept["completion_tokens"], 0 < kept["first_token_seconds"] <= kept["seconds"]
    assert (kept["text"], kept["calls"], measured) == ("Here.", done, (900, 20, True))
    assert told["replies"][0].items() >= {"prompt_tokens": 900, "completion_tokens": 20}.items()
    assert [words.count(one) for one in ("does: give_item(item: rope)", "prompt 900 tokens")] == [1, 1]


def test_the_policy_gets_what_was_done_and_each_call_is_answered(client: TestClient, policy: ChatServer) -> None:
    """As the prompt of a context has it. A conversation that ends with results goes on behind them."""
    result = {"role": "tool", "tool_call_id": "own1", "content": "It is wet."}
    said: list[dict[str, Any]] = [
        *GIVEN,
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "tool_calls": [CALL]},
        result,
    ]
    ask(client, said, model="hob_tarrant/shore@warm")
    received = policy.received[-1].body
    done = {"name": "give_item", "arguments": {"item": "rope"}}
    moment = {
        "character": "hob_tarrant",
        "conversation": [
            *SAID,
            {"role": "assistant", "content": "Here.", "calls": [done]},
            {"role": "user", "content": "Thanks."},
        ],
        "begun": {"role": "assistant", "calls": [{**done, "result": "It is wet."}]},
        "tools": [],
    }
    context = client.post("/worlds/shore/context", json=moment).json()
    messages = [(one["role"], one["content"], one.get("tool_call_id")) for one in context["messages"][1:]]
    assert (received["messages"], received["tools"]) == (context["messages"], context["tools"])
    assert messages == read_table(__file__, "done_messages.yaml", list[tuple[str, str | None, str | None]])


def test_a_tool_of_the_game_takes_the_place_of_an_action(client: TestClient, policy: ChatServer) -> None:
    told = ask(client, SAID, tools=[GAME_TOOL], tool_choice="required")
    received: Any = policy.received[-1].body
    found = {tool["function"]["name"]: tool["function"]["parameters"] for tool in received["tools"]}
    assert found == {"give_item": GIVE, "ring_bell": GAME_TOOL["parameters"]}
    assert (told["play"]["replaced_actions"], received["tool_choice"]) == (["ring_bell"], "required")
    message = told["choices"][0]["message"]
    assert (message["content"], list_done(message["tool_calls"])) == ("Here.", [("give_item", {"item": "rope"})])


@pytest.mark.parametrize(
    ("model", "more"),
    [("hob_tarrant@warm", {"tools": []}), ("hob_tarrant@warm", {"tool_choice": "none"}), ("ambrose_tull@warm", {})],
)
def test_a_client_may_want_words_only(client: TestClient, policy: ChatServer, model: str, more: dict[str, Any]) -> None:
    """So are characters without typed actions asked."""
    told = ask(client, SAID, **{"model": model, **more})
    received: Any = policy.received[-1].body
    found = "tools" in received, "calling a tool" in received["messages"][0]["content"]
    assert (found, told["choices"][0]["message"]) == ((False, False), {"role": "assistant", "content": "Here."})


def test_replies_that_differ_in_their_calls_make_a_label_that_is_exported_with_them(client: TestClient) -> None:
    said = [{"role": "user", "content": "And lamp oil?"}]
    told = [ask(client, said, seed=seed)["play"] for seed in (1, 1, 2)]
    path, chosen = f"/play/v1/turns/{told[0]['turn']}/better", {"reply": told[0]["replies"][0]["id"], "consent": True}
    client.post(path, json=chosen).raise_for_status()
    (row,) = map(json.loads, client.get("/export", params={"shape": "labels"}).text.splitlines())
    calls = [list_done(row[side][0]["tool_calls"]) for side in ("chosen", "rejected")]
    tools = [tool["function"]["name"] for tool in json.loads(row["tools"])]
    assert (calls, tools) == ([[("give_item", {"item": "rope"})], [("ring_bell", {})]], ["give_item", "ring_bell"])
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("Here.", "Here.")


EXAMPLES = Path(__file__).parents[3] / "examples"


def read_templates(file: str) -> dict[str, str]:
    """The requests of an engine's client, with places to fill, by their names in small letters."""
    written = (EXAMPLES / file).read_text(encoding="utf-8")
    found = re.findall(r'const (?:string )?(\w+) :?= (?:@"|""")(\{.*?\})"', written)
    return {name.lower(): text.replace('""', '"') for name, text in found}


def fill(template: str, **places: str) -> str:
    for name, text in places.items():
        template = template.replace(f"${name}", text)
    return template


@pytest.mark.parametrize("file", ["unity_npc.cs", "godot_npc.gd"])
def test_the_requests_of_engines_are_accepted(client: TestClient, policy: ChatServer, file: str) -> None:
    """Their clients cannot be run here."""
    forms = read_templates(file)
    made = fill(forms["made"], id='"a"', name='"give_item"', text='"{\\"item\\": \\"rope\\"}"')
    messages = [
        fill(forms["said"], text='"A rope, please."'),
        fill(forms["replied"], text='"Here."', calls=made),
        fill(forms["result"], id='"a"', text='"It is wet."'),
        fill(forms["said"], text='"Thanks."'),
        fill(forms["replied"], text='"Mind it."', calls=""),
        fill(forms["said"], text='"And oil?"'),
    ]
    body = fill(forms["request"], model='"hob_tarrant@warm"', player='"one"', messages=", ".join(messages))
    answer = client.post("/play/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    received: Any = policy.received[-1].body
    assert (answer.status_code, answer.text.endswith("data: [DONE]\n\n")) == (200, True), answer.text
    assert [(one["role"], one["content"]) for one in received["messages"][1:]] == read_table(
        __file__, "engine_messages.yaml", list[tuple[str, str]]
    )


@pytest.mark.parametrize(
    ("tool", "field"),
    read_table(__file__, "refused_tools.yaml", list[tuple[dict[str, Any], str]]),
)
def test_a_tool_that_nobody_could_call_is_refused(client: TestClient, tool: dict[str, Any], field: str) -> None:
    body = {"model": "hob_tarrant@warm", "messages": SAID, "tools": [tool]}
    answer = client.post("/play/v1/chat/completions", json=body)
    assert (answer.status_code, answer.text.count(field) > 0) == (422, True)
