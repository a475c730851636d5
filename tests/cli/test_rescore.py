"""Scoring many groups anew from the command line, against a real gateway."""

from collections.abc import Callable

import httpx
import pytest
import respx
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.rescore import RescoreTally
from app.domain.groups import GroupSummary, Scoring
from app.domain.scores import Score
from app.service.rescoring import RescoreReply
from tests.support.gateways import Gateways
from tests.support.serving import Served

RUNNER = CliRunner()
RUN = "rescored"


@pytest.fixture(scope="module")
def served(gateways: Gateways) -> Served:
    gateway = gateways.of()
    handed = httpx.get(f"{gateway.url}/envs/npc_arena/next-batch?batch_size=3&run={RUN}&cursor=0").json()["tasks"]
    texts = ("Well met. Mind the step.", "As an AI language model I cannot say.", "Ask me again tomorrow, friend.")
    completions = [{"text": text} for text in texts]
    groups = [{"task_id": task["task_id"], "completions": completions} for task in handed]
    httpx.post(f"{gateway.url}/score", json={"run": RUN, "groups": groups}).raise_for_status()
    return gateway


def group_views(served: Served) -> list[dict[str, list[object]]]:
    listed = httpx.get(f"{served.url}/groups?run={RUN}").json()["groups"]
    return [httpx.get(f"{served.url}/groups/{group['group_id']}").json() for group in listed]


def rescore(served: Served, *options: str) -> tuple[int, str]:
    ran = RUNNER.invoke(cli, ["rescore", "--url", served.url, *options])
    return ran.exit_code, " ".join(ran.output.split())


def test_groups_are_scored_anew_once(served: Served) -> None:
    options = ("--env", "npc_arena", "--run", RUN, "--judge", "offline", "--relative-weight", "0")
    limited = rescore(served, *options, "--limit", "1")
    counts = sorted(len(view["scorings"]) for view in group_views(served))
    everything = [rescore(served, *options, "--concurrency", "2") for _ in range(2)]
    assert (limited[0], "1 groups rescored" in limited[1], counts) == (0, True, [0, 0, 1])
    assert [(code, "3 groups rescored" in output) for code, output in everything] == [(0, True)] * 2
    assert [len(view["scorings"]) for view in group_views(served)] == [1, 1, 1]
    for figure in ("Spearman of rewards", "best completion changed", "completions compared │ 9", "0, $0.0000"):
        assert figure in everything[1][1]
    assert "3 groups, of which 0 are not scored so yet: at most 0 calls" in everything[1][1]


def test_a_dry_run_stores_nothing_and_leaves_judged_groups_out(served: Served) -> None:
    run = "dry"
    for name, text in (("countdown", "<answer>1</answer>"), ("npc_arena", "Well met.")):
        task = httpx.get(f"{served.url}/envs/{name}/next-batch?batch_size=1&run={run}").json()["tasks"][0]
        group = {"task_id": task["task_id"], "completions": [{"text": text}]}
        httpx.post(f"{served.url}/score", json={"run": run, "groups": [group]}).raise_for_status()
    code, output = rescore(served, "--run", run, "--dry-run")
    listed = httpx.get(f"{served.url}/groups?run={run}").json()["groups"]
    views = [httpx.get(f"{served.url}/groups/{group['group_id']}").json() for group in listed]
    said = ("0 of 1 groups would be paid otherwise", "1 groups are left out")
    assert (code, [words in output for words in said], [view["scorings"] for view in views]) == (
        0,
        [True] * 2,
        [[], []],
    )


def test_what_is_paid_otherwise_is_told_by_kind() -> None:
    tally = RescoreTally()
    summarise: Callable[..., GroupSummary] = GroupSummary.model_construct
    describe: Callable[..., Scoring] = Scoring.model_construct
    right, wrong = Score.exact(True, rationale="correct"), Score.exact(False, rationale="the answer is wrong")
    lost = Score.unscored("version_changed", "it no longer asks this")
    for number, (before, scores) in enumerate(
        [((0.0, 1.0), (right, right)), ((0.0, 1.0), (right, wrong)), ((1.0, None), (lost, wrong))]
    ):
        group = summarise(group_id=f"group_{number}", environment="math", policy=None)
        scoring = describe(group_id=group.group_id, outcome="scored", scores=scores)
        rewards = tuple(score.reward for score in scores)
        tally.add(group, RescoreReply(scoring=scoring, rewards=rewards, original=before))
    told = [(one.change, one.reason, one.completions, one.groups, one.example) for one in tally.list_changes()]
    assert told == [
        ("paid now", "correct", 2, 2, "group_0"),
        ("no longer paid", "the answer is wrong", 1, 1, "group_1"),
        ("no score now", "version_changed", 1, 1, "group_2"),
        ("scored now", "the answer is wrong", 1, 1, "group_2"),
    ]


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--judge", "nobody"), 1, "there is no judge 'nobody'"),
        (("--run", "rescoredd"), 1, "there is no run 'rescoredd'; did you mean 'rescored'?"),
        (("--mode", "shouting"), 2, '`--mode`: "shouting" was given'),
    ],
)
def test_what_is_refused_is_said(served: Served, options: tuple[str, ...], status: int, said: str) -> None:
    code, output = rescore(served, *options)
    assert (code, said in output) == (status, True)


@pytest.mark.parametrize("command", ["demo", "rescore"])
@pytest.mark.parametrize(("host", "address"), [("0.0.0.0", "127.0.0.1"), ("gateway.invalid", "gateway.invalid")])
def test_the_gateway_is_looked_for_where_the_settings_serve_it(
    command: str, host: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.rescore.GIVE_UP_SECONDS", 0.0)
    with respx.mock:
        asked = respx.route(host=address, port=9).mock(side_effect=httpx.ConnectError("nobody listens"))
        ran = RUNNER.invoke(cli, [command], env={"ATROPOS_ENVS_HOST": host, "ATROPOS_ENVS_PORT": "9"})
    said = f"cannot reach the gateway at http://{address}:9 (set --url)"
    assert (asked.called, ran.exit_code, said in " ".join(ran.output.split())) == (True, 1, True)
