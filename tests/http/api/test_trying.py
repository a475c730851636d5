"""The author tries a draft without a trace; an edited sheet joins while outstanding tasks keep theirs."""

import shutil
import sqlite3
import time
from collections.abc import Iterator

import httpx
import pytest
from pydantic import JsonValue

from app.toolkit.templates import find_packaged_folder
from tests.support.serving import Served, serving

SHEET = find_packaged_folder("character_sheets") / "hob_tarrant.yaml"
KEPT_NOTHING = ("tasks", "groups", "rollouts", "scores", "judgements", "leases", "runs")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("trying")
    shutil.copytree(SHEET.parent, folder / "sheets")
    with serving(folder, settings={"ATROPOS_ENVS_CHARACTER_SHEETS": str(folder / "sheets")}) as served:
        _await_examples(served)
        yield served


def _await_examples(gateway: Served) -> None:
    """The examples of the document are tasks, and are stored shortly after the start."""
    for _ in range(400):
        body = httpx.get(f"{gateway.url}/openapi.json", timeout=60).json()["paths"]["/next-batch"]["post"][
            "requestBody"
        ]
        if "example" in body["content"]["application/json"]:
            return
        time.sleep(0.05)
    raise AssertionError("the examples were never prepared")


def _rows(gateway: Served) -> dict[str, int]:
    with sqlite3.connect(gateway.database) as connection:
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in KEPT_NOTHING
        }
    connection.close()
    return counts


def _try(gateway: Served, draft: dict[str, JsonValue], *texts: str) -> httpx.Response:
    body = {"draft": draft, "completions": [{"text": text} for text in texts]}
    return httpx.post(f"{gateway.url}/envs/npc_arena/try", json=body, timeout=120)


def test_a_trial_shows_everything_and_keeps_nothing(gateway: Served) -> None:
    before = _rows(gateway)
    reply = _try(
        gateway,
        {
            "sheet": SHEET.read_text(encoding="utf-8"),
            "line": "Is the ferry running?",
            "events": [{"text": "It floods."}],
        },
        "As an AI language model I cannot help with ferries.",
        "No ferry. Water's up.",
    )
    trial = reply.raise_for_status().json()
    gated, judged = trial["completions"]
    assert "It floods." in trial["messages"][0]["content"]
    assert trial["messages"][-1] == {"role": "user", "content": "Is the ferry running?"}
    assert (gated["score"]["reward"], [gate["flag"] for gate in gated["gates"]]) == (0.0, ["breaks_character"])
    assert (judged["score"]["outcome"], judged["gates"], trial["judges"]) == ("scored", [], ["offline"])
    assert [judgement["order"] for judgement in trial["judgements"]] == [[judged["score"]["candidate"]]]
    assert (trial["calls"], _rows(gateway)) == (0, before)


def test_without_replies_it_shows_the_prompt(gateway: Served) -> None:
    trial = _try(gateway, {"character": "hob_tarrant", "line": "Good morning."}).raise_for_status().json()
    assert (trial["completions"], trial["judgements"], len(trial["messages"])) == ([], [], 2)


@pytest.mark.parametrize(
    ("draft", "field"),
    [
        ({"line": "Hello."}, "draft.sheet"),
        ({"character": "nobody", "line": "Hello."}, "draft.character"),
        ({"character": "hob_tarrant"}, "draft.line"),
        ({"character": "hob_tarrant", "scene": "nowhere"}, "draft.scene"),
        ({"sheet": "meta: [", "line": "Hello."}, "draft.sheet"),
        ({"sheet": {"meta": {}}, "line": "Hello."}, "draft.sheet.meta"),
    ],
)
def test_a_wrong_draft_is_refused_by_field(gateway: Served, draft: dict[str, JsonValue], field: str) -> None:
    reply = _try(gateway, draft, "Hm.")
    assert (reply.status_code, reply.json()["errors"][0]["field"].startswith(field)) == (422, True), reply.text


def test_an_edited_sheet_joins_while_outstanding_tasks_keep_theirs(gateway: Served) -> None:
    def hob() -> dict[str, JsonValue]:
        ask = {"select": {"character": ["hob_tarrant"]}, "batch_size": 1}
        batch = httpx.post(f"{gateway.url}/envs/npc_arena/next-batch", json=ask, timeout=120).raise_for_status().json()
        task: dict[str, JsonValue] = batch["tasks"][0]
        return task

    before = hob()
    file = gateway.database.parent / "sheets" / "hob_tarrant.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("ferry", "raft"), encoding="utf-8")
    changed = httpx.post(f"{gateway.url}/characters/reload", timeout=120).raise_for_status().json()
    after = hob()
    body = {"groups": [{"task_id": task["task_id"], "completions": [{"text": "Aye."}]} for task in (before, after)]}
    scored = httpx.post(f"{gateway.url}/envs/npc_arena/score", json=body, timeout=120).raise_for_status().json()
    digests = {group["scores"][0]["scoring_digest"] for group in scored["groups"]}
    assert (changed["added"], changed["changed"], changed["removed"]) == ([], ["hob_tarrant"], [])
    assert before["task_id"] != after["task_id"]
    assert ([group["outcome"] for group in scored["groups"]], len(digests)) == (["scored", "scored"], 2)


def test_a_broken_sheet_changes_nothing(gateway: Served) -> None:
    served = httpx.get(f"{gateway.url}/characters").json()
    file = gateway.database.parent / "sheets" / "broken.yaml"
    file.write_text("meta: nothing", encoding="utf-8")
    refused = httpx.post(f"{gateway.url}/characters/reload", timeout=120)
    file.unlink()
    assert (refused.status_code, "broken.yaml" in refused.json()["detail"]) == (422, True)
    assert httpx.get(f"{gateway.url}/characters").json() == served
