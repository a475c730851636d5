"""The health of runs over HTTP and on the command line: the audit, holds, options, versions of judges."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import respx
from pydantic import JsonValue
from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.judging import Judgement, JudgeRequest
from app.domain.runs import Hold
from app.features.health.model import RunHealth
from app.features.health.store import RunHealthStore
from app.judges.chat_judge import ScriptedJudge
from app.judges.panel import ConfiguredPanels
from app.main.store import Store
from tests.support.playground import World, by_number, gateway
from tests.support.store_cases import START, alarm

ALARM = alarm()


class NamedJudge(ScriptedJudge):
    def __init__(self, name: str, model: str) -> None:
        super().__init__(by_number, name)
        self.model = model

    async def judge(self, request: JudgeRequest) -> Judgement:
        made = await super().judge(request)
        return made.model_copy(update={"served_model": "m-1", "system_fingerprint": "fp_1"})


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
async def client(store_url: str) -> AsyncIterator[httpx.AsyncClient]:
    judges = {"one": NamedJudge("one", "m"), "twin": NamedJudge("twin", "m"), "other": NamedJudge("other", "n")}
    async with gateway(World(), store_url, ConfiguredPanels(judges, {}, fallback=("one",))) as client:
        yield client


async def score_one(client: httpx.AsyncClient) -> httpx.Response:
    handed = (await client.post("/envs/arena/next-batch", json={"run": "a"})).json()["tasks"]
    completions: JsonValue = [{"text": "0.8"}, {"text": "0.2"}]
    group = {"task_id": handed[0]["task_id"], "completions": completions}
    return await client.post("/envs/arena/score", json={"groups": [group], "run": "a"})


async def test_a_held_run_hands_out_nothing_and_scores_until_it_is_released(
    client: httpx.AsyncClient, store: Store
) -> None:
    await client.put("/runs/a", json={"health": {"on_alarm": "hold"}})
    task = (await client.post("/envs/arena/next-batch", json={"run": "a"})).json()["tasks"][0]["task_id"]
    await store.part(RunHealthStore).add_alarm("a", ALARM, Hold(alarm_id="alarm_1", reason="length", since=START))
    await client.put("/runs/a", json={})  # this process learns of it, as it does within seconds
    refused = await client.post("/envs/arena/next-batch", json={"run": "a"})
    mixed = await client.post("/next-batch", json={"run": "a", "mix": [{"env": "arena", "weight": 1}]})
    tested = await client.post("/envs/arena/next-batch", json={"run": "a", "purpose": "eval", "cursor": 0})
    body: JsonValue = {"groups": [{"task_id": task, "completions": [{"text": "0.8"}, {"text": "0.1"}]}], "run": "a"}
    scored = await client.post("/envs/arena/score", json=body)
    report = (await client.get("/runs/a")).json()
    released = await client.post("/runs/a/release", json={})
    after = await client.post("/envs/arena/next-batch", json={"run": "a"})
    gone = (await client.get("/runs/a")).json()
    found = [reply.status_code for reply in (refused, mixed, tested, scored, released, after)]
    assert found == [*(409, 409), *(200, 200, 200, 200)]
    assert (refused.json()["code"], "length" in refused.json()["detail"]) == ("run_held", True)
    assert [alarm["alarm_id"] for alarm in report["alarms"]] == ["alarm_1"]
    assert (report["run"]["held"]["reason"], gone["run"]["held"], gone["alarms"]) == ("length", None, [])


async def test_options_change_at_any_time_stay_when_left_out_and_name_their_field_when_wrong(
    client: httpx.AsyncClient,
) -> None:
    wrong: list[tuple[str, dict[str, JsonValue]]] = [
        ("health.shadow_judge", {"shadow_judge": "nobody"}),
        ("health.shadow_judge", {"shadow_judge": "twin"}),
        ("body.health.share", {"share": 0.6}),
        ("body.health.on_alarm", {"on_alarm": "stop"}),
    ]

    for field, health in wrong:
        refused = await client.put("/runs/b", json={"options": {"judges": ["one"]}, "health": health})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
    assert (await client.get("/runs/b")).status_code == 404
    asked: list[dict[str, JsonValue]] = [{}, {"health": {"share": 0.01, "shadow_judge": "other"}}, {}]
    puts = [(await client.put("/runs/a", json=body)).json()["health"] for body in asked]
    assert [(put["share"], put["shadow_judge"]) for put in puts] == [(0.03, None), (0.01, "other"), (0.01, "other")]


@respx.mock
async def test_the_audit_says_what_it_can_see_and_the_command_prints_alarms(
    client: httpx.AsyncClient, store: Store
) -> None:
    await score_one(client)
    found = RunHealth.model_validate((await client.get("/runs/a/health")).json())
    missing = await client.get("/runs/nobody/health")
    assert (missing.status_code, found.held, found.alarms, len(found.figures)) == (404, None, (), 12)
    assert (found.can_see != (), found.cannot_see != (), found.options.share) == (True, True, 0.03)
    await store.part(RunHealthStore).add_alarm("a", ALARM, None)
    told = (await client.get("/runs/a/health")).text
    respx.get("http://127.0.0.1:8000/runs/a/health").respond(200, text=told)
    ran = await asyncio.to_thread(CliRunner().invoke, cli, ["runs", "health", "a"])  # it has a loop of its own
    shown = [words in ran.output for words in ("since about group 900 (noticed", "Length in characters", "ALARM")]
    assert (ran.exit_code, shown) == (1, [True] * 3)


@respx.mock
async def test_why_rewards_are_low_is_the_same_over_http_on_the_page_and_in_the_terminal(
    client: httpx.AsyncClient, store: Store
) -> None:
    task = (await client.post("/envs/arena/next-batch", json={"run": "a"})).json()["tasks"][0]["task_id"]
    empty: JsonValue = {"task_id": task, "completions": [{"text": ""}] * 8}
    await client.post("/envs/arena/score", json={"groups": [empty], "run": "a"})
    begun = alarm().model_copy(update={"series": "beginning", "evidence": "All rewards of the first 64 groups are 0."})
    await store.part(RunHealthStore).add_alarm("a", begun, None)
    told = (await client.get("/runs/a/health")).text
    page = (await client.get("/view/runs/a", headers={"accept": "text/html"})).text
    respx.get("http://127.0.0.1:8000/runs/a/health").respond(200, text=told)
    ran = await asyncio.to_thread(CliRunner().invoke, cli, ["runs", "health", "a"])
    why = "8 of 8 replies got 0 from the gate `empty`."
    assert [one.sentence for one in RunHealth.model_validate_json(told).findings] == [why]
    assert [words for words in (why, "All rewards of the first 64 groups are 0. (") if words not in ran.output] == []
    wanted = (why.replace("`", ""), "/view/groups?run=a&amp;flag=empty", "All rewards of the first 64 groups are 0.")
    assert [words for words in wanted if words not in page] == []


async def test_versions_of_judges_are_kept_once_and_listed(client: httpx.AsyncClient, store: Store) -> None:
    made = Judgement(judge="one", model="m", order=(), served_model="m-1", system_fingerprint="fp_1", calls=1)
    for fingerprint in ("fp_1", "fp_1", "fp\x002"):
        await store.judge_cache.put(made.model_copy(update={"system_fingerprint": fingerprint}))
    listed = (await client.get("/judges")).json()["judges"]
    versions = next(judge["versions"] for judge in listed if judge["name"] == "one")
    found = sorted((each["model"], each["system_fingerprint"]) for each in versions)
    assert found == [("m-1", "fp\x002"), ("m-1", "fp_1")]
