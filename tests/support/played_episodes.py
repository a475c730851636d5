"""A gateway whose player is a model on loopback, and a trainer that plays episodes with it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.support.chat_server import Received, Reply, Script
from tests.support.chat_server import serving as serving_chat
from tests.support.serving import Served, serving

CALM = (
    '{"say": "And if I only have one?", "done": false}',
    '{"say": "My sister is ill.", "done": false}',
    '{"say": "Keep your boat, then.", "done": true}',
)
SAID = ("And if I only have one?", "My sister is ill.", "Keep your boat, then.")
"""`CALM` as the policy hears it."""
REPLIES = ("Two coppers.", "Then walk.", "Aye.", "Nay.", "Tide's turning.", "Mud.")


class Client(Protocol):
    def post(self, url: str, /, *, json: Any) -> Any: ...


def answer(text: str, **choice: Any) -> Reply:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    body = {"model": "carter-1", "choices": [{"message": message, "finish_reason": "stop"} | choice], "usage": usage}
    return Reply(json.dumps(body).encode())


def say_in_turn(lines: tuple[str, ...]) -> Script:
    """By how often the character has spoken after the opening, whoever asks and however often."""

    def script(number: int, received: Received) -> Reply:
        heard = received.messages[-1]["content"].count('{"character": ')
        return answer(lines[min(heard, len(lines)) - 1])

    return script


def build_settings(url: str, **player: Any) -> dict[str, Any]:
    return {"carter": {"base_url": url, "model": "carter-1", "as_player": player}}


@contextmanager
def serving_player(folder: Path, **settings: str) -> Iterator[Served]:
    """A gateway in a process of its own whose player says `CALM`, and nothing usable in the scene `FAILING`."""
    calm = say_in_turn(CALM)

    def script(number: int, received: Received) -> Reply:
        return answer("Hm?") if "my brother" in received.messages[-1]["content"] else calm(number, received)

    with serving_chat(script) as carter:
        policies = json.dumps(build_settings(carter.url))
        with serving(folder, settings={"ATROPOS_ENVS_POLICIES": policies, **settings}) as served:
            yield served


PARAMS: Mapping[str, Any] = {"turns": "multi", "player": {"policy": "carter"}}
SCENE = "hob_tarrant-played-fare_short"
FAILING = "hob_tarrant-played-drowned_brother"


def ask_task(client: Client, scene: str = SCENE, **more: Any) -> dict[str, Any]:
    body = {"batch_size": 1, "params": PARAMS, "select": {"scene": [scene]}, **more}
    task: dict[str, Any] = client.post("/envs/npc_arena/next-batch", json=body).json()["tasks"][0]
    return task


def find_index(url: str, scene: str = SCENE) -> int:
    """Of a scene's task among all of these params, as `tasks --first` takes it."""
    with httpx.Client(base_url=url, timeout=60) as client:
        index: int = client.get(f"/tasks/{ask_task(client, scene)['task_id']}").json()["index"]
    return index


def step(client: Client, task: Mapping[str, Any], messages: list[dict[str, Any]]) -> Any:
    return client.post("/envs/npc_arena/step", json={"task_id": task["task_id"], "messages": messages}).json()


def say(*replies: str) -> list[dict[str, Any]]:
    """Replies of the character and lines of the player in turn."""
    return [{"role": ("assistant", "user")[place % 2], "content": text} for place, text in enumerate(replies)]


def play(client: Client, task: Mapping[str, Any], replies: tuple[str, ...] = REPLIES) -> list[dict[str, Any]]:
    """The whole episode, as a trainer would send it."""
    messages: list[dict[str, Any]] = []
    for reply in replies[: task["max_turns"]]:
        messages.append({"role": "assistant", "content": reply})
        turn = step(client, task, messages)
        if turn["done"]:
            break
        messages += turn["messages"]
    return messages


def score(client: Client, task: Mapping[str, Any], *episodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    group = {"task_id": task["task_id"], "completions": [{"messages": one} for one in episodes]}
    scored: dict[str, Any] = client.post("/envs/npc_arena/score", json={"groups": [group], **more}).json()["groups"][0]
    return scored
