"""A whole run scored by another judge: the report by hand, the cost before it, and a command that is killed."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import JsonValue
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.rescore import RescoreSpec, RescoreSummary, RescoreTally, print_summary, rescore_groups
from app.domain.errors import UserError
from app.domain.judging import JudgeRequest
from app.evaluation.comparison import RescoredGroup, report_flips
from app.judges.chat_judge import ScriptedJudge
from app.judges.panel import ConfiguredPanels
from app.ports.environment import Environment
from app.service.rescoring import RescoreEstimate, RescoreRequest
from app.terminal.client import GatewayClient
from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as judge_serving
from tests.support.playground import Arena, PaidJudge, World, by_number, gateway
from tests.support.preferring import preferring
from tests.support.rescored import BY_HAND, GROUPS, OTHER_JUDGE, figures_of
from tests.support.serving import ROOT, free_port, serving


def differing(request: JudgeRequest, count: int) -> Mapping[str, float]:
    return {candidate.id: OTHER_JUDGE[candidate.text] for candidate in request.candidates}


async def store_groups(client: httpx.AsyncClient) -> None:
    """The groups as the first judge scores them. One more was dropped, and has nothing to compare."""
    await client.put("/runs/a", json={"options": {"relative_weight": 0}, "max_lag": 5, "lag_policy": "drop"})
    handed: JsonValue = {"run": "a", "batch_size": 4, "policy": {"step": 0}}
    tasks = (await client.post("/envs/arena/next-batch", json=handed)).json()["tasks"]
    waiting = list(GROUPS)
    for task in tasks:
        group = next(one for one in waiting if one.label == task["metadata"]["level"])
        waiting.remove(group)
        texts: JsonValue = [{"text": str(reward)} for reward in group.original]
        answer: JsonValue = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": texts}
        body: JsonValue = {"policy": {"model": "m", "step": group.step}, "groups": [answer]}
        (reply,) = (await client.post("/envs/arena/score", json=body)).json()["groups"]
        assert reply["rewards"] == pytest.approx(list(group.original))
    again = (await client.post("/envs/arena/next-batch", json={**handed, "batch_size": 1})).json()["tasks"][0]  # type: ignore[dict-item]
    stale: JsonValue = {"task_id": again["task_id"], "lease_id": again["lease_id"], "completions": [{"text": "0.9"}]}
    await client.post("/envs/arena/score", json={"policy": {"model": "m", "step": 9}, "groups": [stale]})


def spec(*, yes: bool) -> RescoreSpec:
    return RescoreSpec("arena", "a", None, 3, RescoreRequest(judges=("other",), relative_weight=0.0), yes)


@pytest.fixture
def other() -> PaidJudge:
    return PaidJudge(differing, "other", 0.1, 0.25)


@pytest.fixture
async def asked(other: PaidJudge, database: Path) -> AsyncIterator[GatewayClient]:
    """A gateway that holds the groups, and has a judge who differs."""
    judges = {"critic": ScriptedJudge(by_number, "critic"), "other": other}
    async with gateway(World(), database, ConfiguredPanels(judges, {}, fallback=("critic",))) as client:
        await store_groups(client)
        yield GatewayClient(client)


async def test_a_judge_of_known_difference_makes_the_figures_computed_by_hand(
    asked: GatewayClient, other: PaidJudge
) -> None:
    first, second = RescoreTally(), RescoreTally()
    with pytest.raises(UserError, match="--yes"):
        await rescore_groups(asked, spec(yes=False), first)
    before = len(other.requests)
    await rescore_groups(asked, spec(yes=True), first)
    made = len(other.requests)
    await rescore_groups(asked, spec(yes=False), second)
    assert (before, len(other.requests)) == (0, made)
    stored = await asked.estimate_rescore(first.groups[0].group_id, spec(yes=True).request)
    named = sorted(first.groups, key=lambda one: (one.step or 0, one.label or ""))
    renamed = [
        RescoredGroup(own.group_id, one.original, one.rescored, one.label, one.step)
        for own, one in zip(GROUPS, named, strict=True)
    ]
    assert figures_of(report_flips(renamed)) == BY_HAND
    assert (first.calls, round(first.cost_usd, 6)) == (made, round(0.1 * made, 6))
    assert (sorted(second.groups, key=str), second.calls) == (sorted(first.groups, key=str), 0)
    assert stored == RescoreEstimate(stored=True)


async def test_an_estimate_is_a_bound_and_asks_nobody(asked: GatewayClient, other: PaidJudge) -> None:
    tally = RescoreTally()
    listed = [one for one in (await asked.list_groups({"run": "a"})).groups if any(one.rewards)]
    bound = await asked.estimate_rescore(listed[0].group_id, spec(yes=True).request)
    silent = len(other.requests)
    await rescore_groups(asked, spec(yes=True), tally)
    assert (bound.stored, bound.calls, bound.cost_usd, bound.input_tokens > 0, silent) == (False, 4, 1.0, True, 0)
    assert tally.cost_usd <= 4 * (bound.cost_usd or 0)


async def test_an_estimate_of_what_an_environment_does_not_say_is_of_an_unknown_group(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a price only where every judge has one."""
    estimates = []
    for other in (PaidJudge(differing, "other", 0.1, most) for most in (0.25, None)):
        judges = {"critic": ScriptedJudge(by_number, "critic"), "other": other}
        async with gateway(World(), database, ConfiguredPanels(judges, {}, fallback=("critic",))) as client:
            await store_groups(client)
            asked = GatewayClient(client)
            (first, *_) = [one for one in (await asked.list_groups({"run": "a"})).groups if any(one.rewards)]
            with monkeypatch.context() as patched:
                patched.setattr(Arena, "build_cases", Environment.build_cases)
                estimates.append(await asked.estimate_rescore(first.group_id, spec(yes=True).request))
    assert [(one.stored, one.calls > 0, one.input_tokens > 0, (one.cost_usd or 0) > 0) for one in estimates] == [
        (False, True, True, True),
        (False, True, True, False),
    ]
    assert estimates[1].cost_usd is None


def test_a_label_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    group = RescoredGroup("a", (0.1, 0.9), (0.9, 0.1), label="\x1b[2J[red]")
    print_summary(
        RescoreSummary(groups=1, unscored=0, calls=0, cost_usd=0.0, report=report_flips([group]), dry_run=None)
    )
    shown = capsys.readouterr().out
    assert ("⟨U+001B⟩[2J[red]" in shown, "\x1b" in shown) == (True, False)


def test_ctrl_c_is_told_from_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.cli.rescore._rescore_all", interrupt)
    ran = CliRunner().invoke(cli, ["rescore", "--url", "http://127.0.0.1:9"])
    assert (ran.exit_code, "run the same command again to resume" in ran.output) == (130, True)


class SlowJudge:
    """Counts what it was asked, by the messages."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, number: int, received: Received) -> Reply:
        self.asked[json.dumps(received.body["messages"])] += 1
        return Reply(preferring(number, received).body, seconds=0.3)

    def wait_until_asked(self, often: int, command: "subprocess.Popen[bytes]") -> None:
        due = time.monotonic() + 120
        while len(self.asked) < often and command.poll() is None and time.monotonic() < due:
            time.sleep(0.01)


def start_rescore(folder: Path, url: str) -> tuple["subprocess.Popen[bytes]", list[str]]:
    """The command in a process of its own, and the same for this one."""
    options = ["rescore", "--url", url, "--run", "a", "--judge", "slow", "--concurrency", "2", "--json"]
    command = [sys.executable, "-m", "app.cli", *options, "--yes"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE), options


def invoke(*words: str) -> dict[str, Any]:
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
def test_a_command_that_is_killed_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    judge = SlowJudge()
    with judge_serving(judge) as server:
        write_settings(tmp_path, server.url)
        with serving(tmp_path) as served:
            rewarded = store_sixteen(served.url)
            command, options = start_rescore(tmp_path, served.url)
            judge.wait_until_asked(6, command)
            command.kill()
            command.communicate()
            partly = len(judge.asked)
            found, again = invoke(*options, "--yes"), invoke(*options)
    assert (found["groups"], found["unscored"], {*judge.asked.values()}) == (rewarded, 0, {1})
    assert (partly < len(judge.asked), 0 < found["calls"] < len(judge.asked)) == (True, True)
    assert (again["calls"], again["report"]) == (0, found["report"])


@pytest.mark.slow
def test_a_gateway_that_is_killed_goes_on_and_counts_nothing_twice(tmp_path: Path) -> None:
    judge = SlowJudge()
    with judge_serving(judge) as server:
        write_settings(tmp_path, server.url)
        port = free_port()
        with serving(tmp_path, port=port) as served:
            rewarded = store_sixteen(served.url)
            command, options = start_rescore(tmp_path, served.url)
            judge.wait_until_asked(6, command)
            served.kill()
        asked = judge.asked
        lost = sum(asked.values()) - count_rows(served.database, "judge_cache")
        with serving(tmp_path, port=port):
            found = json.loads(command.communicate(timeout=180)[0])
            again = invoke(*options)
    twice = sum(asked.values()) - len(asked)
    assert (command.returncode, found["groups"], found["unscored"]) == (0, rewarded, 0)
    assert count_rows(served.database, "scorings") == rewarded
    assert (0 <= twice <= lost < len(asked), found["calls"] <= sum(asked.values())) == (True, True)
    assert (again["calls"], again["report"]) == (0, found["report"])


def count_rows(database: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
    return count


def write_settings(folder: Path, judge_url: str) -> None:
    known = {"base_url": judge_url, "model": "counter"}
    config = {"judges": {"slow": known}, "environments": {"rlaif": {"judges": ["offline"]}}}
    (folder / "gateway.yaml").write_text(json.dumps(config), encoding="utf-8")


def store_sixteen(url: str) -> int:
    """The groups that have a reward."""
    tasks = httpx.post(f"{url}/envs/rlaif/next-batch", json={"run": "a", "batch_size": 16}, timeout=60).json()["tasks"]
    texts = [{"text": "Yes."}, {"text": "Yes, of course, why not, if you like."}]
    groups = [{"task_id": one["task_id"], "lease_id": one["lease_id"], "completions": texts} for one in tasks]
    told = httpx.post(f"{url}/score", json={"groups": groups}, timeout=60).json()["groups"]
    return sum(any(reward is not None for reward in group["rewards"]) for group in told)
