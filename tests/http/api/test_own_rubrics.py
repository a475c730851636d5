"""A rubric of one's own, from the settings or a run's options: what it decides, where it is seen, what is refused."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.envs.npc_arena.environment import STARTING_RUBRIC, NpcArena
from app.envs.rlaif.environment import Rlaif
from app.judges.prompts import load_rubric
from app.settings import EnvironmentSettings, Settings
from tests.support.playground import serve_here
from tests.support.tables import read_table

TEXTS = ("Water's high, friend. I'd not cross before noon.", "Ask me again tomorrow.")
RUBRIC = read_table(__file__, "tavern.yaml", str)
Json = dict[str, Any]


def write(folder: Path, text: str = RUBRIC) -> Path:
    file = folder / "tavern.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def serve(folder: Path, rubric: Path | None) -> AbstractContextManager[TestClient]:
    settings = Settings(
        database_url=f"sqlite:///{folder / 'gateway.db'}",
        environments={"npc_arena": EnvironmentSettings(rubric=rubric)},
    )
    return serve_here(settings, NpcArena, Rlaif)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[TestClient]:
    with serve(tmp_path, None) as client:
        yield client


@pytest.fixture
def given(tmp_path: Path) -> Json:
    return load_rubric(write(tmp_path)).model_dump(mode="json")


def score(client: TestClient, environment: str = "npc_arena", run: str = "r") -> Json:
    task = client.get(f"/envs/{environment}/next-batch?batch_size=1&run={run}&cursor=0").json()["tasks"][0]["task_id"]
    group = {"task_id": task, "completions": [{"text": text} for text in TEXTS]}
    reply: Json = client.post("/score", json={"run": run, "groups": [group]}).raise_for_status().json()["groups"][0]
    return reply


def criteria(reply: Json) -> list[tuple[str, float]]:
    return [(one["name"], one["weight"]) for one in reply["scores"][0]["criteria"]]


OWN = [("wit", 0.75), ("responsiveness", 0.25)]


def test_a_rubric_of_the_settings_is_seen_wherever_criteria_are(tmp_path: Path) -> None:
    with serve(tmp_path, write(tmp_path)) as client:
        reply = score(client)
        listed = client.get("/envs/npc_arena").json()
        viewed = client.get(f"/view/groups/{reply['group_id']}").text
        stats = client.get("/stats?env=npc_arena").json()["rows"][0]["criteria"]
        exported = client.get("/export?shape=rollouts&format=jsonl&offline_judge=true").text
    assert (criteria(reply), [(one["name"], one["weight"]) for one in listed["criteria"]]) == (OWN, OWN)
    assert (listed["rubric"]["name"], listed["rubric"]["version"]) == ("tavern", "7")
    assert [one["name"] for one in stats] == ["wit", "responsiveness"]
    assert ("wit" in viewed, '"wit"' in exported) == (True, True)


def test_a_run_has_its_own_its_trainer_gets_its_criteria_and_others_keep_the_usual_one(
    plain: TestClient, given: Json
) -> None:
    plain.put("/runs/own", json={"options": {"rubric": given}}).raise_for_status()
    own, usual, elsewhere = score(plain, run="own"), score(plain), score(plain, "rlaif", "own")
    assert (criteria(own), criteria(usual)[0][0], criteria(elsewhere)[0][0]) == (
        OWN,
        "in_character_consistency",
        "preference",
    )
    assert own["scores"][0]["scoring_digest"] != usual["scores"][0]["scoring_digest"]
    task = plain.get("/envs/npc_arena/next-batch?batch_size=1&run=own&cursor=1").json()["tasks"][0]["task_id"]
    asked = {"query": TEXTS[0], "prompts": "", "labels": task}
    logs = plain.post("/compat/openrlhf/npc_arena/get_reward?run=own", json=asked).json()["extra_logs"]
    assert [name for name in logs if name.startswith("criterion_")] == ["criterion_wit", "criterion_responsiveness"]


def test_the_rubric_that_begins_ones_own_scores_as_the_usual_one_and_memory_where_something_was_said_before(
    plain: TestClient,
) -> None:
    options = {"rubric": STARTING_RUBRIC.model_dump(mode="json", exclude_none=True)}
    plain.put("/runs/own", json={"options": options}).raise_for_status()
    told = []
    for scene in ("hob_tarrant-marsh", "hob_tarrant-memory_told"):
        for run in ("usual", "own"):
            body = {"batch_size": 1, "run": run, "select": {"scene": [scene]}}
            task = plain.post("/envs/npc_arena/next-batch", json=body).json()["tasks"][0]["task_id"]
            group = {"task_id": task, "completions": [{"text": text} for text in TEXTS]}
            scored = plain.post("/score", json={"run": run, "groups": [group]}).json()["groups"][0]["scores"][0]
            memory = [one["value"] is not None for one in scored["criteria"] if one["name"] == "memory"]
            told.append((memory, round(scored["reward"], 6)))
    assert [memory for memory, _ in told] == [[], [False], [True], [True]]
    assert (told[0][1], told[2][1]) == (told[1][1], told[3][1])


def test_a_re_scoring_by_another_rubric_says_which(plain: TestClient, given: Json) -> None:
    before = score(plain)
    heavier = {**given, "criteria": [{**given["criteria"][0], "weight": 0.5}, given["criteria"][1]]}
    path = f"/groups/{before['group_id']}/rescore"
    made = [plain.post(path, json={"rubric": rubric}).json()["scoring"] for rubric in (given, given, heavier)]
    page = plain.get(f"/view/groups/{before['group_id']}").text
    digests = [one["scoring_digest"] for one in made]
    assert (digests[0] == digests[1], len({*digests, before["scores"][0]["scoring_digest"]})) == (True, 3)
    assert [(one["rubric"]["name"], one["rubric"]["version"]) for one in made] == [("tavern", "7")] * 3
    assert [one["rubric"]["digest"][:8] in page for one in made] == [True] * 3
    group = score(plain, "rlaif")["group_id"]
    refused = plain.post(f"/groups/{group}/rescore", json={"rubric": given})  # it has one in its params
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "rubric")


def test_a_changed_file_is_another_scoring_for_a_run_that_began_before(tmp_path: Path) -> None:
    with serve(tmp_path, write(tmp_path)) as client:
        score(client)
    with serve(tmp_path, write(tmp_path, RUBRIC.replace("cap: 0.3", "cap: 0.2"))) as client:
        task = client.get("/envs/npc_arena/next-batch?batch_size=1&run=r&cursor=1").json()["tasks"][0]["task_id"]
        group = {"task_id": task, "completions": [{"text": text} for text in TEXTS]}
        reply = client.post("/score", json={"run": "r", "groups": [group]}).json()["groups"][0]
    assert "scoring_changed" in reply["flags"]


def test_a_wrong_rubric_of_a_run_is_refused_by_field_and_nothing_is_stored(plain: TestClient, given: Json) -> None:
    wrong: list[tuple[Json, str]] = [
        ({"criteria": []}, "body.options.rubric.criteria"),
        ({"extra": 1}, "body.options.rubric.extra"),
        ({"defects": []}, "options.rubric.defects"),
        ({"claims": {"criterion": "charm", "unsupported": "knows"}}, "options.rubric.claims.criterion"),
    ]
    refused = [plain.put("/runs/own", json={"options": {"rubric": {**given, **change}}}) for change, _ in wrong]
    told = [(one.status_code, [error["field"] for error in one.json()["errors"]]) for one in refused]
    assert told == [(422, [field]) for _, field in wrong]
    assert plain.get("/runs/own").status_code == 404
