"""`runs estimate`: calls, tokens and dollars before a run, from the prompts that its judges would get."""

import asyncio
import json

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.runs import measure_replies
from app.terminal.client import GatewayClient
from tests.support.gateways import Gateways
from tests.support.tables import read_table

TABLE = read_table(__file__, "runs.yaml", tuple[tuple[tuple[str, ...], str], ...])

RUN = CliRunner()
PRICES = {"input_price_per_million": "2", "output_price_per_million": "10"}


@pytest.fixture(autouse=True)
def _two_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STERN", "MILD"):
        for key, value in {"base_url": "http://127.0.0.1:9/v1", "model": "m", **PRICES}.items():
            monkeypatch.setenv(f"ATROPOS_ENVS_JUDGES__{name}__{key.upper()}", value)
    monkeypatch.setenv("ATROPOS_ENVS_ENVIRONMENTS__NPC_ARENA__JUDGES", '["stern"]')


def estimate(*more: str) -> tuple[int, str]:
    ran = RUN.invoke(cli, ["runs", "estimate", *more, *(() if "--run" in more else ("--reply-tokens", "60"))])
    return ran.exit_code, ran.output


def test_calls_tokens_and_dollars_come_before_any_judge_is_asked() -> None:
    code, output = estimate("--env", "npc_arena", "--groups", "1000", "--json")
    found = json.loads(output)
    (stern,) = found["judges"]
    dollars = [
        (2 * tokens + 10 * out) / 1e6 for tokens, out in zip(stern["input_tokens"], stern["output_tokens"], strict=True)
    ]
    assert (code, stern["judge"], stern["calls"], found["calls"]) == (0, "stern", [2.0, 4.0], [2000.0, 4000.0])
    assert stern["usd"] == pytest.approx(dollars, rel=1e-3)
    assert found["usd"] == pytest.approx([1000 * one for one in dollars], rel=1e-3)
    assert stern["input_tokens"][0] > 1000


def test_longer_replies_take_their_tokens_in_each_reading() -> None:
    """Eight more tokens of four replies, in one reading and no call more."""
    arguments = ["--env", "npc_arena", "--mode", "listwise", "--group-size", "4", "--json"]
    short, long = (
        json.loads(RUN.invoke(cli, ["runs", "estimate", *arguments, "--reply-tokens", tokens]).stdout)["judges"][0]
        for tokens in ("60", "68")
    )
    more = [round(one - other) for one, other in zip(long["input_tokens"], short["input_tokens"], strict=True)]
    assert (more, long["calls"]) == ([8 * 4 * calls for calls in short["calls"]], short["calls"])


def test_lengths_are_those_of_a_run_that_has_some(gateways: Gateways) -> None:
    gateway = gateways.of()
    asked = {"run": "lengthy", "batch_size": 1}
    (task,) = httpx.post(f"{gateway.url}/envs/gsm8k/next-batch", json=asked).json()["tasks"]
    said = {"task_id": task["task_id"], "completions": [{"text": "<think>" + 400 * "x" + "</think>" + 80 * "y"}]}
    httpx.post(f"{gateway.url}/envs/gsm8k/score", json={"run": "lengthy", "groups": [said]}).raise_for_status()
    where = ("--run", "lengthy", "--url", gateway.url)
    measured = asyncio.run(measure(gateway.url, "lengthy"))
    nowhere = estimate("--env", "npc_arena", *where)
    both, neither = (
        RUN.invoke(cli, ["runs", "estimate", "--env", "npc_arena", *more])
        for more in (["--run", "lengthy", "--reply-tokens", "9"], [])
    )
    told = "lengthy has no replies in npc_arena whose texts are kept: say how long they are by --reply-tokens"
    missing = "say how long replies are: by --reply-tokens, or by --run"
    assert (measured, nowhere[0], both.exit_code, neither.exit_code) == (20.0, 2, 2, 2)
    assert [told in nowhere[1], *(missing in ran.output for ran in (both, neither))] == [True] * 3


async def measure(url: str, run: str) -> float:
    async with httpx.AsyncClient(base_url=url) as client:
        return await measure_replies(GatewayClient(client), "gsm8k", run)


@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        (("--mode", "pointwise", "--group-size", "4"), [4.0, 4.0]),
        (("--judge", "stern", "--judge", "mild", "--mode", "pointwise", "--group-size", "2"), [2.0, 2.0]),
        (("--env", "rlaif", "--judge", "mild", "--mode", "pointwise", "--group-size", "2"), [2.0, 2.0]),
    ],
)
def test_a_mode_and_a_size_make_their_calls(arguments: tuple[str, ...], calls: list[float]) -> None:
    code, output = estimate("--env", "npc_arena", *arguments, "--json")
    assert (code, [one["calls"] for one in json.loads(output)["judges"]]) == (
        0,
        [calls] * arguments.count("--judge") or [calls],
    )


@pytest.mark.parametrize(("arguments", "words"), TABLE)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    code, output = estimate(*arguments)
    assert (code, words in output) == (2, True), output


def test_a_reward_model_is_not_estimated_as_if_it_read_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"kind": "reward_model", "route": "vllm_classify", "chat_template": "server"}
    for key, value in {"base_url": "http://127.0.0.1:9", "model": "m", **own}.items():
        monkeypatch.setenv(f"ATROPOS_ENVS_JUDGES__SCALAR__{key.upper()}", value)
    code, output = estimate("--env", "npc_arena", "--judge", "scalar")
    assert (code, "judge 'scalar' is a reward model: it reads each reply once" in output) == (2, True), output


def test_a_run_is_made_and_what_may_change_of_it_is_changed(gateways: Gateways) -> None:
    def put(*options: str) -> tuple[int, dict[str, object]]:
        ran = RUN.invoke(cli, ["runs", "set", "lagging", "--url", gateways.of().url, "--json", *options])
        found = json.loads(ran.stdout) if ran.exit_code == 0 else {"said": ran.output}
        return ran.exit_code, {name: found.get(name) for name in ("seed", "max_lag", "lag_policy")}

    def show() -> str:
        return RUN.invoke(cli, ["runs", "set", "lagging", "--url", gateways.of().url]).stdout

    assert [
        put("--lag-policy", "drop")[0],
        put("--seed", "7", "--max-lag", "4", "--lag-policy", "pace"),
        put("--max-lag", "2"),
        put("--no-max-lag"),
        put("--seed", "8")[0],
        show(),
    ] == [
        1,
        (0, {"seed": 7, "max_lag": 4, "lag_policy": "pace"}),
        (0, {"seed": 7, "max_lag": 2, "lag_policy": "pace"}),
        (0, {"seed": 7, "max_lag": None, "lag_policy": "pace"}),
        1,
        "lagging: seed 7, strict no, characters newest, budget in USD none, max lag none, lag policy pace\n",
    ]
