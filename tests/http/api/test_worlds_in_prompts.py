"""One text everywhere: what was retrieved once is what policy, stored task and judges see, whichever rank asks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from pydantic import JsonValue

from app.domain.tasks import Context
from app.service.requests import HandedOutTask, TaskBatch
from tests.support.chat_server import ChatServer
from tests.support.chat_server import serving as judge_serving
from tests.support.preferring import preferring
from tests.support.serving import serving
from tests.support.shown_prompts import shown_to
from tests.support.tables import read_table

DAWN = datetime(1312, 4, 3, 6, tzinfo=UTC)
SECRET = "The Margravine signed for a toll bridge."


@dataclass(frozen=True)
class Arena:
    url: str
    judge: ChatServer

    def tell(self, world: str, *events: Mapping[str, JsonValue]) -> None:
        body = {"events": list(events)}
        httpx.post(f"{self.url}/worlds/{world}/events", json=body, timeout=120).raise_for_status()

    def next_batch(self, world: str, **more: JsonValue) -> httpx.Response:
        body = {
            "params": {"world": world, "scenes": "by_hand"},
            "batch_size": 4,
            "select": {"character": ["hob_tarrant"]},
            **more,
        }
        return httpx.post(f"{self.url}/envs/npc_arena/next-batch", json=body, timeout=60)

    def tasks(self, world: str, **more: JsonValue) -> tuple[HandedOutTask, ...]:
        return TaskBatch.model_validate(self.next_batch(world, **more).raise_for_status().json()).tasks

    def score(self, task: HandedOutTask, *texts: str) -> None:
        group = {"task_id": task.task_id, "completions": [{"text": text} for text in texts]}
        reply = httpx.post(f"{self.url}/envs/npc_arena/score", json={"groups": [group]}, timeout=60)
        (scored,) = reply.raise_for_status().json()["groups"]
        assert [one["rationale"] for one in scored["scores"] if one["outcome"] != "scored"] == []


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("prompts")
    with judge_serving(preferring) as judge:
        judges = {"counting": {"base_url": judge.url, "model": "counter"}}
        text = json.dumps({"judges": judges, "environments": {"npc_arena": {"judges": ["counting"]}}})
        (folder / "gateway.yaml").write_text(text, encoding="utf-8")
        with serving(folder) as gateway:
            yield Arena(gateway.url, judge)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.originalname).replace("test_", "")[:60]


def happened(name: str, text: str, hours: float = 0, **more: JsonValue) -> dict[str, JsonValue]:
    return {"id": name, "time": (DAWN + timedelta(hours=hours)).isoformat(), "text": text, **more}


def prompts(tasks: Sequence[HandedOutTask]) -> list[str]:
    return [task.messages[0].content or "" for task in tasks]


SHOWN = read_table(__file__, "one_text.yaml", dict[str, object])


def test_policy_stored_task_and_judges_see_the_same(arena: Arena, world: str) -> None:
    arena.tell(
        world,
        happened("rope", "The ferry's rope broke at Reedgate."),
        happened("bridge", SECRET, 1, visibility=["ottoline_vesk"], leak_terms=["toll bridge"]),
        happened("fair", "The spring fair was put off.", 2),
    )
    book = {"entries": [{"id": "chain", "constant": True, "content": "The chain bell\nhas rung since the flood."}]}
    httpx.put(f"{arena.url}/worlds/{world}/lorebooks/reedgate", json=book, timeout=120).raise_for_status()
    (task,) = arena.tasks(world, batch_size=1)
    stored = httpx.get(f"{arena.url}/tasks/{task.task_id}").raise_for_status().json()
    arena.score(task, "Water's up.", "Nay, the rope's gone and I splice it myself.")
    told = shown_to(arena.judge.received[-1]).context.splitlines()
    withheld = told.index("withheld_events:")
    (prompt,) = prompts([task])
    assert {
        "stored": [[passage["id"], passage["text"]] for passage in stored["passages"]],
        "prompt": [line for line in prompt.splitlines() if "rope broke" in line or "fair" in line or "chain" in line],
        "now": "Now is 1312-04-03 08:00." in prompt,
        "lore": [line for line in told if line.startswith("lore: ")],
        "judge": told[withheld - 2 : withheld + 2],
        "kept": stored["messages"] == [message.model_dump(mode="json") for message in task.messages],
        "secret": [SECRET in text for text in (prompt, json.dumps(stored))],
    } == SHOWN


def test_what_was_told_before_the_reply_is_known_to_the_next_batch(arena: Arena, world: str) -> None:
    known: list[list[bool]] = []
    for number in range(3):
        arena.tell(world, happened(f"e{number}", f"Barge {number} came in.", number))
        known.append([f"Barge {number} came in." in prompt for prompt in prompts(arena.tasks(world))])
    assert known == [[True] * 4] * 3


def test_a_large_batch_is_retrieved_for_whole(arena: Arena, world: str) -> None:
    arena.tell(world, happened("rope", "The ferry's rope broke."))
    tasks = arena.tasks(world, batch_size=256, select={})
    assert (len(tasks), all("The ferry's rope broke." in prompt for prompt in prompts(tasks))) == (256, True)


def test_a_trial_in_a_world_is_told_of_it(arena: Arena, world: str) -> None:
    arena.tell(world, happened("rope", "The ferry's rope broke."), happened("b", SECRET, visibility=["x"]))
    drafts = [{"character": "hob_tarrant", "line": "Well?", "params": {"world": one}} for one in (world, "nowhere")]
    url = f"{arena.url}/envs/npc_arena/try"
    told, refused = [httpx.post(url, json={"draft": draft}, timeout=120).json() for draft in drafts]
    trial = Context.model_validate({name: told[name] for name in ("passages", "withheld")})
    assert ([one.id for one in trial.passages], [one.id for one in trial.withheld]) == (["rope"], ["b"])
    assert [error["field"] for error in refused["errors"]] == ["draft.params.world"]
