"""`runs estimate`: calls, tokens and dollars before a run, from the prompts that its judges would get."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.gateways import Gateways

RUN = CliRunner()
PRICES = {"input_price_per_million": "2", "output_price_per_million": "10"}


@pytest.fixture(autouse=True)
def _two_judges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STERN", "MILD"):
        for key, value in {"base_url": "http://127.0.0.1:9/v1", "model": "m", **PRICES}.items():
            monkeypatch.setenv(f"ATROPOS_ENVS_JUDGES__{name}__{key.upper()}", value)
    monkeypatch.setenv("ATROPOS_ENVS_ENVIRONMENTS__NPC_ARENA__JUDGES", '["stern"]')


def estimate(*more: str) -> tuple[int, str]:
    ran = RUN.invoke(cli, ["runs", "estimate", *more])
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--env", "gsm8k"), "gsm8k is scored by a verifier: no judge is asked, and nothing is paid"),
        (("--env", "npc_arenaa"), "did you mean 'npc_arena'?"),
        (("--env", "npc_arena", "--judge", "stren"), "options.judges: there is no judge 'stren'"),
        (("--env", "npc_arena", "--readings", "3"), "readings"),
        (("--env", "npc_arena", "--params", '{"turn": 2}'), "turn"),
    ],
)
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
        ran = RUN.invoke(cli, ["runs", "set", "lagging", "--url", gateways.of().url, *options])
        found = json.loads(ran.stdout) if ran.exit_code == 0 else {"said": ran.output}
        return ran.exit_code, {name: found.get(name) for name in ("seed", "max_lag", "lag_policy")}

    assert [
        put("--lag-policy", "drop")[0],
        put("--seed", "7", "--max-lag", "4", "--lag-policy", "pace"),
        put("--max-lag", "2"),
        put("--no-max-lag"),
        put("--seed", "8")[0],
    ] == [
        1,
        (0, {"seed": 7, "max_lag": 4, "lag_policy": "pace"}),
        (0, {"seed": 7, "max_lag": 2, "lag_policy": "pace"}),
        (0, {"seed": 7, "max_lag": None, "lag_policy": "pace"}),
        1,
    ]
