"""A reward model judges over HTTP on both sides, and what it was asked and answered is exported."""

import json
from pathlib import Path
from typing import Any

from app.envs.npc_arena.environment import NpcArena
from app.settings import EnvironmentSettings, JudgeSettings, Settings
from tests.support.chat_server import Received, Reply, serving
from tests.support.playground import serve_here

TEXTS = ("Water's high, friend. I'd not cross before noon.", "Ask me again tomorrow.")


def reward_length(number: int, received: Received) -> Reply:
    messages: Any = received.body["messages"]
    data = [{"index": 0, "label": "LABEL_0", "probs": [len(messages[-1]["content"])], "num_classes": 1}]
    return Reply(json.dumps({"data": data, "usage": {"prompt_tokens": 9, "total_tokens": 9}}).encode())


def test_a_reward_model_of_the_settings_scores_and_its_readings_are_exported(tmp_path: Path) -> None:
    with serving(reward_length) as server:
        judge = JudgeSettings(
            kind="reward_model",
            base_url=server.url.removesuffix("/v1"),
            model="rm",
            route="vllm_classify",
            chat_template="server",
            reward_center=30,
            reward_scale=10,
        )
        settings = Settings(
            database_url=f"sqlite:///{tmp_path / 'gateway.db'}",
            judges={"rm": judge},
            environments={"npc_arena": EnvironmentSettings(judges=("rm",))},
        )
        with serve_here(settings, NpcArena) as client:
            task = client.get("/envs/npc_arena/next-batch?batch_size=1&cursor=0").json()["tasks"][0]
            group = {"task_id": task["task_id"], "completions": [{"text": text} for text in (*TEXTS, TEXTS[0])]}
            reply = client.post("/score", json={"groups": [group]}).raise_for_status().json()["groups"][0]
            page = client.get(f"/view/groups/{reply['group_id']}").text
            lines = client.get("/export?shape=judgements&private=true").text.splitlines()
            summary = client.get("/export/summary?shape=judgements&private=true&judge=other").json()
            refused = client.get("/export?shape=judgements")
    rows = {json.loads(line)["messages"][-1]["content"]: json.loads(line) for line in lines}
    asked = [{"role": one["role"], "content": one["content"]} for one in task["messages"]]
    better, worse = (len(text) for text in TEXTS)
    assert reply["rewards"][0] == reply["rewards"][2] > reply["rewards"][1]
    assert [one["criteria"][0]["name"] for one in reply["scores"]] == ["reward_model"] * 3
    assert f"reward {better}" in page
    assert [(rows[text]["judge"], rows[text]["calls"], rows[text]["input_tokens"]) for text in TEXTS] == [
        ("rm", 1, 9)
    ] * 2
    assert [[*json.loads(rows[text]["answer"]).values()] for text in TEXTS] == [[better], [worse]]
    assert [rows[text]["messages"][:-1] for text in TEXTS] == [asked] * 2
    assert {row["scoring_digest"] for row in rows.values()} == {reply["scores"][0]["scoring_digest"]}
    assert summary == {"rows": 0, "left_out": {"other_judge": 2}}
    assert (refused.status_code, "set private" in refused.text, len(lines)) == (422, True, 2)
