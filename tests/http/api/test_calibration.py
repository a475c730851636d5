"""Groups that are read once more beside replies of known level: values that no reward depends on, and their cost."""

import json
import re
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.characters.loading import read_sheets
from app.envs.npc_arena.environment import NpcArena
from app.settings import EnvironmentSettings, JudgeSettings, Settings
from tests.support.chat_server import Received, Reply, serving
from tests.support.playground import serve_here
from tests.support.preferring import complete, write_verdict
from tests.support.shown_prompts import read_prompt

Json = dict[str, Any]
SHEETS = Path(__file__).resolve().parents[3] / "character_sheets"
WRITTEN = {"exemplar": "Well spoken, stranger q3.2.", "plain": "I see q2.", "generic": "Who knows q0.8."}


OWN = {
    text: level
    for sheet in read_sheets(SHEETS)
    for one in sheet.probes.exemplars
    for text, level in ((one.plain, 2.0), (one.generic, 0.8))
}


def read_level(text: str) -> float:
    """What a reply names; of those that people wrote, what it is known for."""
    named = re.search(r"q([0-9](\.[0-9])?)\.$", text)
    return OWN.get(text, 3.2) if named is None else float(named[1])


@dataclass
class Grader:
    """Gives a reply the level that it names, and writes references that name theirs."""

    answers: int = 0
    shown: list[tuple[str, ...]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, number: int, received: Received) -> Reply:
        system, question = (message["content"] for message in received.messages[:2])
        with self.lock:
            self.answers += 1
            if system.startswith("You write replies"):
                return answer(json.dumps(WRITTEN), question)
            told = read_prompt(question)
            self.shown.append(tuple(told.texts.values()))
        return answer(write_verdict(told, {name: read_level(text) for name, text in told.texts.items()}), question)


def answer(text: str, question: str) -> Reply:
    return complete(text, 1 + len(question) // 5, 100)


def gateway(database: Path, url: str, share: float) -> AbstractContextManager[TestClient]:
    judge = JudgeSettings(
        base_url=url,
        model="grader-1",
        json_mode="off",
        warm_cache=False,
        input_price_per_million=1.0,
        output_price_per_million=1.0,
    )
    settings = Settings(
        database_url=f"sqlite:///{database}",
        judges={"grader": judge},
        environments={"npc_arena": EnvironmentSettings(judges=("grader",), calibration_share=share)},
    )
    return serve_here(settings, NpcArena)


def bodies(client: TestClient, count: int, run: str = "r") -> list[Json]:
    """Of scenes that judges score alone: where code verifies a part, nothing is calibrated."""
    query = f"batch_size={2 * count}&run={run}&cursor=0"
    handed = client.get(f"/envs/npc_arena/next-batch?{query}").json()["tasks"]
    tasks = [task for task in handed if task["metadata"]["scene_kind"] not in ("company", "memory")][:count]
    return [
        {
            "run": run,
            "policy": {"model": "learner", "step": 1},
            "groups": [
                {
                    "task_id": task["task_id"],
                    "completions": [{"text": f"Reply {place}-{level} q{level}."} for level in (1, 2, 3)],
                }
            ],
        }
        for place, task in enumerate(tasks)
    ]


def score(client: TestClient, body: Json) -> Json:
    reply: Json = client.post("/score", json=body).raise_for_status().json()["groups"][0]
    return reply


def values(reply: Json, name: str = "calibrated") -> list[float | None]:
    return [None if one[name] is None else round(one[name], 6) for one in reply["scores"]]


def test_a_drawn_group_has_values_on_the_line_through_the_references(tmp_path: Path) -> None:
    grader = Grader()
    with serving(grader) as server, gateway(tmp_path / "a.db", server.url, 1.0) as client:
        (body,) = bodies(client, 1)
        reply = score(client, body)
        detail = client.get(f"/groups/{reply['group_id']}").json()
        stats = client.get("/stats?env=npc_arena").json()["rows"][0]
        spent = client.get("/judges").json()["judges"]
    kinds = [one.get("purpose", "score") for one in detail["judgements"]]
    seen = values(reply)
    assert kinds.count("references") == kinds.count("calibration") == 1
    assert [one is not None and abs(one - level) < 0.03 for one, level in zip(seen, (0.25, 0.5, 0.75), strict=True)]
    assert sorted(one or 0.0 for one in seen) == seen
    assert all(error and error > 0 for error in values(reply, "calibrated_error"))
    assert (stats["calibrated"], round(stats["mean_calibrated"], 2)) == (3, 0.5)
    calls = next(one for one in spent if one["name"] == "grader")["report"]["spent"]["calls"]
    assert (grader.answers, calls) == (calls, sum(one["calls"] for one in detail["judgements"]))


def test_what_rescoring_a_drawn_group_may_cost_counts_its_calibration(tmp_path: Path) -> None:
    grader = Grader()
    with serving(grader) as server, gateway(tmp_path / "a.db", server.url, 0.0) as client:
        (body,) = bodies(client, 1)
        path = f"/groups/{score(client, body)['group_id']}/rescore"
        asked = {share: {"readings": 1, "calibration_share": share} for share in (0.0, 1.0)}
        plain, drawn = (client.post(f"{path}/estimate", json=asked[share]).json() for share in asked)
        scored = client.post(path, json=asked[1.0]).json()
    assert (plain["calls"], drawn["calls"]) == (1, 3)
    assert 1 < scored["calls"] <= 3
    assert scored["cost_usd"] <= drawn["cost_usd"]


def test_no_part_of_a_reward_depends_on_it(tmp_path: Path) -> None:
    found = []
    with serving(Grader()) as server:
        for share in (0.0, 1.0):
            with gateway(tmp_path / f"{share}.db", server.url, share) as client:
                found.append([score(client, body) for body in bodies(client, 4)])
    plain, calibrated = found
    parts = ("reward", "absolute", "relative", "flags", "criteria", "scoring_digest", "rationale", "judges")
    kept = [[[one[part] for part in parts] for reply in each for one in reply["scores"]] for each in found]
    assert kept[0] == kept[1]
    assert [reply["low_signal"] for reply in plain] == [reply["low_signal"] for reply in calibrated]
    assert {value for reply in plain for value in values(reply)} == {None}
    assert None not in [value for reply in calibrated for value in values(reply)]


def test_references_are_candidates_like_all_others(tmp_path: Path) -> None:
    grader = Grader()
    with serving(grader) as server, gateway(tmp_path / "a.db", server.url, 1.0) as client:
        for body in bodies(client, 12):
            score(client, body)
    beside = [texts for texts in grader.shown if len(texts) == 6]
    places = [[at for at, text in enumerate(texts) if not text.startswith("Reply")] for texts in beside]
    assert (len(beside), len({tuple(each) for each in places}) > 6) == (12, True)
    assert {place for each in places for place in each} == set(range(6))
