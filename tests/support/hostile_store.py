"""A gateway in which all that a stranger or a model can write is hostile; and one with the same, but harmless."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml
from pydantic import BaseModel
from starlette.testclient import TestClient

from app.domain.judging import DefectRule, Rubric, RubricCriterion
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, FunctionSpec, Message, Task, ToolSpec
from app.domain.values import NoParams, Split
from app.envs.npc_arena.environment import NpcArena
from app.main.application import create_app
from app.ports.environment import Environment, Tools
from app.settings import EnvironmentSettings, JudgeSettings, PolicySettings, Settings
from tests.support.atropos import ENVIRONMENT, TRAINER
from tests.support.atropos import group as build_sequences
from tests.support.chat_server import Received, Reply, Script, serving
from tests.support.databases import read_migrated_store
from tests.support.judge_cases import failure
from tests.support.playground import READ_SECONDS, await_ready
from tests.support.sample_texts import HOSTILE_LINES, INVISIBLE, SIGNS
from tests.support.shown_prompts import read_prompt
from tests.support.talking import write_stream

Json = dict[str, Any]
MARA: Final = "mara"
QUAY: Final = "quay"
RUN: Final = "wicked"
MAX_WIDTH: Final = 2**20
"""Lines are not folded: hostile ones would be elsewhere."""
_VISIBLE: Final = str.maketrans(dict.fromkeys(INVISIBLE))


@dataclass
class Writer:
    """Texts that name the field in which they stand. `said` are those that were asked for, by field."""

    is_hostile: bool
    said: dict[str, str] = field(default_factory=dict)

    def line(self, place: str, kind: int | None = None) -> str:
        """Of at most 100 characters. Fields take the kinds of hostile lines in turn."""
        number = len(self.said) if kind is None else kind
        return self._write(place, HOSTILE_LINES[number % len(HOSTILE_LINES)])

    def text(self, place: str) -> str:
        """All kinds."""
        return self._write(place, "\n".join(HOSTILE_LINES))

    def reply(self, place: str) -> str:
        """Without invisible signs, of which gates take notice."""
        return self._write(place, "Two coppers. " + HOSTILE_LINES[len(place) % 3].translate(_VISIBLE))

    def _write(self, place: str, hostile: str) -> str:
        text = f"{place} {hostile} {place}"  # models are told apart by what is behind the last slash
        return self.said.setdefault(place, text if self.is_hostile else text.translate(SIGNS))


def build_bazaar(write: Writer) -> type[Environment]:
    """An environment with a data set, a rubric and a scorer that a stranger wrote."""

    class Bazaar(Environment):
        name: ClassVar[str] = "bazaar"
        version: ClassVar[str] = "1"
        Params: ClassVar[type[BaseModel]] = NoParams
        stats_label: ClassVar[str | None] = "stall"
        rubric: ClassVar[Rubric | None] = Rubric(
            name="bazaar",
            version="1",
            instructions="",
            criteria=(
                RubricCriterion(
                    name=write.line("rubric-criterion"),
                    weight=1.0,
                    description=write.text("rubric-description"),
                    anchors={0: write.line("rubric-anchor"), 4: "good"},
                ),
            ),
            defects=(DefectRule(code=write.line("rubric-defect"), description=write.text("defect-description")),),
        )

        def size(self, split: Split, params: BaseModel) -> int | None:
            return 3

        def task(self, split: Split, index: int, params: BaseModel) -> Task:
            argument = {"type": write.line("argument-type"), "description": write.line("argument-description")}
            schema: Json = {"properties": {write.line("argument-name"): argument}}
            tool = FunctionSpec(name=write.line("tool-name"), description=write.text("tool-text"), parameters=schema)
            return Task(
                messages=(
                    Message(role="system", content=write.text("prompt-system")),
                    Message(role="user", content=write.text("prompt-user"), name=write.line("prompt-name")),
                ),
                tools=(ToolSpec(function=tool),),
                metadata={"number": index, "stall": write.line("label"), write.line("metadata-name"): ["x"]},
                reference=str(index),
            )

        async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
            note, named = write.line("criterion-note"), write.line("criterion-name")
            return [
                Score(
                    outcome="scored",
                    reward=place / 4,
                    gate=1.0,
                    absolute=place / 4,
                    criteria=(Criterion(name=named, value=place / 4, weight=1.0, note=note),),
                    flags=(write.line("score-flag"),),
                    rationale=write.text("rationale"),
                )
                for place, _ in enumerate(group)
            ]

    return Bazaar


def build_sheet(write: Writer) -> str:
    sheet: Json = {
        "meta": {
            "schema_version": 1,
            "id": MARA,
            "licence": "MIT",
            "genre": write.line("sheet-genre"),
            "world": "coast",
            "summary": write.text("sheet-summary"),
            "notes": write.text("sheet-notes"),
            "extensions": {write.line("sheet-extension"): "x"},
        },
        "identity": {"name": write.line("sheet-name"), "role": write.text("sheet-role")},
        "core": {"traits": [write.text("sheet-trait")], "backstory": write.text("sheet-story")},
        "voice": {
            "style": write.text("sheet-style"),
            "examples": [{"player": write.text("sheet-player"), "reply": write.text("sheet-reply")}],
        },
        "secrets": [
            {
                "id": "debt",
                "text": write.text("sheet-secret"),
                "reveal_if": write.text("sheet-condition"),
                "leak_terms": [write.line("sheet-term")],
            }
        ],
    }
    return yaml.safe_dump(sheet, width=MAX_WIDTH)


def build_scenes(write: Writer) -> str:
    opening = {"id": "mara-asked", "kind": "voice", "split": "train", "player": write.text("scene-player")}
    told = {
        **{"location": write.text("scene-place"), "time": write.text("scene-time")},
        "situation": write.text("scene-situation"),
        "visible": [{"id": "seen", "time": write.line("seen-time"), "text": write.text("seen-text")}],
    }
    happens = {"id": "mara-sees", "kind": "voice", "split": "train", "event": write.text("scene-event")}
    heard = {"name": write.line("scene-bystander"), "text": write.text("scene-heard")}
    hears = {"id": "mara-hears", "kind": "voice", "split": "train", "bystander": heard}
    return yaml.safe_dump({"character": MARA, "scenes": [{**opening, **told}, happens, hears]}, width=MAX_WIDTH)


def build_event(write: Writer) -> Json:
    return {
        "id": "rope",
        "time": "1312-04-03T09:15:00Z",
        "text": write.text("event-text"),
        "kind": write.line("event-kind"),
        "actors": [write.line("event-actor")],
        "location": write.line("event-place"),
        "visibility": [MARA, write.line("event-circle")],
        "tags": [write.line("event-tag")],
        "leak_terms": [write.line("event-term")],
    }


def build_book(write: Writer) -> Json:
    entry = {
        "id": write.line("entry-id"),
        "name": write.line("entry-name"),
        "keys": [write.line("entry-key"), "ferry"],
        "secondary_keys": [write.line("entry-second")],
        "logic": "not_any",
        "content": write.text("entry-text"),
    }
    return {"name": write.line("book-name"), "description": write.text("book-text"), "entries": [entry]}


def judge_as(write: Writer) -> Script:
    """Prefers the longer reply, says so in hostile words, and quotes what it read."""

    def reply(number: int, received: Received) -> Reply:
        told = read_prompt(received.messages[1]["content"])
        ordered = sorted(told.texts, key=lambda letter: -len(told.texts[letter]))
        levels = {letter: 4 - place for place, letter in enumerate(ordered)}
        quoted = {"candidate": ordered[-1], "quote": told.texts[ordered[-1]]}
        answer = {
            "claims": [{**quoted, "source": None}],
            "defects": [{**quoted, "code": "addresses_judge"}],
            "scores": dict.fromkeys(told.criteria, levels),
            "ranking": [[letter] for letter in ordered],
            "notes": {letter: write.line("judge-note") for letter in ordered},
        }
        said = f"{write.text('judge-words')}\n{json.dumps(answer)}"
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        named = {"model": write.line("judge-says"), "system_fingerprint": write.line("judge-fingerprint")}
        return Reply(json.dumps({"choices": [choice], **named}).encode())

    return reply


def speak_as(write: Writer) -> Script:
    stream = write_stream(write.text("reply"))
    choice = {"index": 0, "message": {"role": "assistant", "content": write.text("reply")}, "finish_reason": "stop"}
    whole = json.dumps({"id": "own", "model": write.line("policy-says"), "choices": [choice]}).encode()

    def reply(number: int, received: Received) -> Reply:
        if received.body.get("stream"):
            return Reply(stream, headers={"content-type": "text/event-stream"})
        return Reply(whole)

    return reply


@dataclass
class FilledStore:
    """`groups` are ids of groups by what is in them."""

    client: TestClient
    write: Writer
    groups: dict[str, str] = field(default_factory=dict)
    turn: str = ""

    @property
    def places(self) -> Mapping[str, str]:
        return {"character": MARA, "world": QUAY, "run": RUN, "turn": self.turn, **self.groups}

    def send(self, method: str, path: str, body: object) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def fill(self) -> None:
        self._write_world()
        for step in (1, 2):
            self.groups["arena"] = self._answer("npc_arena", self._say(step), step, world=QUAY)
            self.groups["bazaar"] = self._answer("bazaar", [self._call(place) for place in range(2)], step)
        self.send("POST", f"/groups/{self.groups['arena']}/rescore", {"judges": ["broken"]})
        self._register()
        self._talk()

    def _write_world(self) -> None:
        write = self.write
        written = {"": build_sheet(write), "/scenes": build_scenes(write)}
        for suffix, text in written.items():
            note = write.line(f"note{suffix.replace('/', '-')}")
            self.send("PUT", f"/characters/{MARA}{suffix}", {"text": text, "revision": 0, "note": note})
        self.send("POST", f"/worlds/{QUAY}/events", {"events": [build_event(write)]})
        self.send("PUT", f"/worlds/{QUAY}/lorebooks/coast", build_book(write))
        self.send("PUT", f"/worlds/{QUAY}-2", {"parent": QUAY, "at": "1312-04-04T00:00:00Z"})

    def _say(self, step: int) -> list[Json]:
        write = self.write
        texts = [write.reply(f"said-{step}"), write.reply("said-always") + " And no more.", write.text("said-gated")]
        return [{"text": text, "finish_reason": write.line("finish")} for text in texts]

    def _call(self, place: int) -> Json:
        write = self.write
        argument = {write.line("call-argument"): write.text("call-value")}
        calls = [
            {"function": {"name": write.line("call-name"), "arguments": argument}},
            {"function": {"name": "look", "arguments": write.line("call-broken")}},
        ]
        said = [
            {"role": "assistant", "content": write.text("call-said") + " On." * 400, "tool_calls": calls},
            {"role": "tool", "name": write.line("result-name"), "content": write.text("result-text")},
            {"role": "tool", "content": json.dumps({"error": write.text("result-error")})},
            {"role": "assistant", "content": f"Done {place}."},
        ]
        return {"messages": said, "extra": {write.line("extra"): 1}}

    def _answer(self, environment: str, said: list[Json], step: int, **params: str) -> str:
        asked = {"batch_size": 1, "run": RUN, "cursor": 0, "params": params}
        (task,) = self.send("POST", f"/envs/{environment}/next-batch", asked)["tasks"]
        body = {
            "run": RUN,
            "policy": {"model": self.write.line("policy-model"), "step": step},
            "groups": [{"task_id": task["task_id"], "completions": said}],
        }
        (group,) = self.send("POST", "/score", body)["groups"]
        return str(group["group_id"])

    def _register(self) -> None:
        """An Atropos trainer and environment."""
        named = {name: self.write.line(f"atropos-{name}") for name in ("wandb_group", "wandb_project")}
        queue = f"/compat/atropos/{RUN}"
        self.send("POST", f"{queue}/register", {**TRAINER, **named})
        self.send("GET", f"{queue}/batch", None)  # from then on it is known to wait for environments
        self.send("POST", f"{queue}/register-env", {**ENVIRONMENT, "desired_name": self.write.line("atropos-env")})
        self.send("POST", f"{queue}/scored_data", build_sequences(2))

    def _talk(self) -> None:
        asked = {
            "model": f"{MARA}/{QUAY}@warm",
            "messages": [{"role": "user", "content": "Is the ferry running? " + self.write.text("player-line")}],
        }
        told = self.send("POST", "/play/v1/chat/completions", asked)["play"]
        self.turn = told["turn"]


def _await_index(client: TestClient) -> None:
    """Else a search finds in one store what it does not find in the other."""
    end = time.monotonic() + READ_SECONDS
    while "not searched by text yet" in client.get("/view/groups", params={"text": "said"}).text:
        assert time.monotonic() < end
        time.sleep(0.05)


@contextlib.contextmanager
def fill_store(folder: Path, *, is_hostile: bool) -> Iterator[FilledStore]:
    """Through the public API alone, but for what an operator writes into settings."""
    write = Writer(is_hostile)
    sheets, database = folder / "sheets", folder / "store.db"
    sheets.mkdir(parents=True)
    plain = {
        "meta": {"schema_version": 1, "id": MARA, "licence": "MIT", "genre": "x", "world": "coast", "summary": "x"}
    }
    (sheets / f"{MARA}.yaml").write_text(json.dumps({**plain, "identity": {"name": "Mara"}}), encoding="utf-8")
    database.write_bytes(read_migrated_store())
    with (
        serving(judge_as(write)) as judge,
        serving(lambda number, received: failure(400, write.text("judge-error"))) as broken,
        serving(speak_as(write)) as policy,
    ):
        settings = Settings(
            database_url=f"sqlite:///{database}",
            character_sheets=sheets,
            judges={
                "critic": JudgeSettings(base_url=judge.url, model=write.line("judge-model"), warm_cache=False),
                "broken": JudgeSettings(base_url=broken.url, model=write.line("broken-model"), warm_cache=False),
            },
            environments={"npc_arena": EnvironmentSettings(judges=("critic",), calibration_share=0)},
            policies={"warm": PolicySettings(base_url=policy.url, model=write.line("policy-name"))},
        )
        kinds: dict[str, type[Environment]] = {"npc_arena": NpcArena, "bazaar": build_bazaar(write)}
        with TestClient(create_app(settings, environments=kinds), base_url="http://127.0.0.1") as client:
            await_ready(client)
            filled = FilledStore(client, write)
            filled.fill()
            _await_index(client)
            yield filled
