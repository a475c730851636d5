"""Groups as trainers read them, the file they stand in, and what may be asked of `process`."""

import asyncio
import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.cli.policies import PolicyPrices
from app.cli.process.atropos import GroupLine, SampledCompletion, build_group_line
from app.cli.process.plan import ProcessMeter, ProcessPlan, ProcessSetup, open_jsonl_output, parse_mix
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.inference.policies import TokenSequence
from app.inference.wire import Usage
from app.service.requests import MixMember
from tests.support.playground import handed_out
from tests.support.tables import read_table

TABLE = read_table(__file__, "groups.yaml", tuple[tuple[str | None, str | None, str | None, str], ...])

TASK = handed_out(1, environment="gsm8k", messages=(Message(role="user", content="2 + 2?"),))
FOUR = SampledCompletion(
    completion=Completion(text="4"), sequence=TokenSequence((1, 2, 9), (-100, 2, 9), (1.0, -0.5, -0.25))
)
CALL = ToolCall(id="c", function=FunctionCall(name="add", arguments="{}"))
CALLED = SampledCompletion(
    completion=Completion(messages=(Message(role="assistant", tool_calls=(CALL,)),), finish_reason="tool_calls"),
    sequence=TokenSequence((1, 3), (-100, 3), (1.0, -0.75)),
)
UNKNOWN = SampledCompletion(completion=Completion(text="5"), sequence=TokenSequence((1, 3), (-100, 3), None))


def line(*samples: SampledCompletion, group: int = 1) -> GroupLine:
    return build_group_line(TASK, samples, f"group_{group:032x}", [1.5, -0.25][: len(samples)], {"temperature": 1.0})


def test_a_line_holds_the_fields_of_atropos_after_where_they_come_from() -> None:
    """Others' environments give rewards below 0 and above 1."""
    asked: JsonValue = {"role": "user", "content": "2 + 2?"}
    call: JsonValue = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert json.loads(line(FOUR, CALLED).as_json()) == {
        "task_id": TASK.task_id,
        "group_id": f"group_{1:032x}",
        "environment": "gsm8k",
        "tokens": [[1, 2, 9], [1, 3]],
        "masks": [[-100, 2, 9], [-100, 3]],
        "scores": [1.5, -0.25],
        "inference_logprobs": [[1.0, -0.5, -0.25], [1.0, -0.75]],
        "messages": [
            [asked, {"role": "assistant", "content": "4"}],
            [asked, {"role": "assistant", "content": "", "tool_calls": [call]}],
        ],
        "generation_params": {"temperature": 1.0},
    }


def test_log_probabilities_are_all_known_or_an_empty_list() -> None:
    assert json.loads(line(FOUR, UNKNOWN).as_json())["inference_logprobs"] == []


def put(path: Path, *lines: GroupLine, began: bool = True) -> list[str]:
    async def each() -> None:
        for one in lines:
            await file.put(one)

    with open_jsonl_output(path, began=began) as file:
        asyncio.run(each())
    return [json.loads(text)["group_id"][-1] for text in path.read_text(encoding="utf-8").splitlines()]


def test_a_group_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.jsonl"
    first = put(path, line(FOUR), line(FOUR), line(FOUR, group=2), began=False)
    assert (first, put(path, line(FOUR, group=2), line(FOUR, group=3))) == (["1", "2"], ["1", "2", "3"])


def test_half_a_line_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    put(path, line(FOUR), line(FOUR, group=2), began=False)
    path.write_bytes(path.read_bytes()[:-7])
    assert put(path, line(FOUR, group=2)) == ["1", "2"]


def test_somebody_elses_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"text": "mine"}\n', encoding="utf-8")
    told = []
    for began in (False, True):
        with pytest.raises(ValueError, match=r"out\.jsonl") as raised, open_jsonl_output(path, began=began):
            pass
        told.append(str(raised.value).split("out.jsonl")[1])
    expected = [" already exists without a journal: use another --out", ":1: not a group"]
    assert (told, path.read_text(encoding="utf-8")) == (expected, '{"text": "mine"}\n')


def test_environments_are_one_or_a_mixture() -> None:
    one = parse_mix("rlaif", None, "test", '{"preference": "short"}')
    several = parse_mix(None, "gsm8k=2, npc_arena=0.5,tool_calling", "train", None)
    assert (one, [(member.env, member.weight) for member in several]) == (
        (MixMember(env="rlaif", split="test", params={"preference": "short"}),),
        [("gsm8k", 2.0), ("npc_arena", 0.5), ("tool_calling", 1.0)],
    )


@pytest.mark.parametrize(("env", "mix", "params", "words"), TABLE)
def test_a_bad_option_is_named(env: str | None, mix: str | None, params: str | None, words: str) -> None:
    with pytest.raises(ValueError, match="--") as raised:
        parse_mix(env, mix, "train", params)
    assert str(raised.value).startswith(words)


def test_the_meter_counts_rewards_tokens_and_money() -> None:
    meter = ProcessMeter(PolicyPrices(input=1.0, output=4.0), began=0.0)
    meter.add_usage(Usage(prompt_tokens=1_000_000, completion_tokens=500_000))
    meter.add_group([1.0, 0.0, 0.5])
    assert (meter.mean, meter.prices.compute_cost(meter.usage), PolicyPrices(input=1.0).compute_cost(meter.usage)) == (
        0.5,
        3.0,
        None,
    )


@pytest.mark.parametrize(
    ("step", "cursor", "how"),
    [
        (None, None, {"lease_seconds": 600.0}),
        (12, None, {"lease_seconds": 600.0, "policy": {"step": 12}}),
        (12, 8, {"cursor": 8}),
    ],
)
def test_leases_are_asked_for_at_the_step_of_the_policy(
    step: int | None, cursor: int | None, how: dict[str, JsonValue]
) -> None:
    mix = parse_mix("gsm8k", None, "train", None)
    setup = ProcessSetup(mix=mix, run="a", by_cursor=cursor is not None, model="m", step=step, group_size=2, to="jsonl")
    plan = ProcessPlan(setup, limit=None, batch_size=4, hands=4, lease_seconds=600.0, first_cursor=0)
    mixture: JsonValue = [{"env": "gsm8k", "weight": 1.0, "split": "train", "params": {}}]
    assert plan.build_request(4, cursor) == {"mix": mixture, "run": "a", "batch_size": 4, **how}
