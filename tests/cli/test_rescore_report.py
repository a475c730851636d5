"""A whole run scored by another judge: the report by hand, and the cost before it."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

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
from tests.support.playground import Arena, PaidJudge, World, by_number, gateway
from tests.support.rescored import BY_HAND, GROUPS, OTHER_JUDGE, figures_of


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
