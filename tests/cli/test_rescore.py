"""Scoring many groups anew from the command line, against a real gateway."""

import httpx
import pytest
import respx
from typer.testing import CliRunner

from app.cli.main import cli
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


def test_a_run_that_does_not_exist_is_said_with_the_nearest_one(served: Served) -> None:
    code, output = rescore(served, "--run", "rescoredd")
    assert (code, "there is no run 'rescoredd'; did you mean 'rescored'?" in output) == (1, True)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--judge", "nobody"), 1, "there is no judge 'nobody'"),
        (("--mode", "shouting"), 2, "'listwise', 'pairwise', 'pointwise'"),
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
