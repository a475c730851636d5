"""Exports: which completions become rows, and rows as files that others can read."""

import json
from collections.abc import AsyncGenerator, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import JsonValue, ValidationError

from app.domain.groups import Group, GroupFilter, Rollout, TaskPrompt, TaskRecord
from app.domain.runs import Policy
from app.domain.scores import Criterion, Score
from app.domain.tasks import (
    Completion,
    Context,
    FunctionCall,
    FunctionSpec,
    Message,
    TaskKey,
    ToolCall,
    ToolSpec,
    Withheld,
)
from app.features.exports.model import ExportRequest, StoredGroup
from app.features.exports.service import stream_export, summarise_export
from app.features.exports.store import ExportStore
from tests.support.store_cases import START
from tests.support.tables import read_table

NEWEST = 1_000
"""Later than every group here."""
TOOL = ToolSpec(function=FunctionSpec(name="count", parameters={"type": "object"}))
CALL = ToolCall(id="1", function=FunctionCall(name="count", arguments={"of": "é"}))
WITHHELD = Context(withheld=(Withheld(id="w", reason="future", text="The bridge will fall."),))


def judged(reward: float, value: float, relative: float | None = None, *, judge: str = "sage", flag: str = "") -> Score:
    return Score(
        outcome="scored",
        reward=reward,
        gate=1.0,
        absolute=value,
        relative=relative,
        criteria=(Criterion(name="lore", value=value, weight=1.0, note="as the sheet says"),),
        flags=(flag,) if flag else (),
        judges=(judge,),
        rationale="fits",
    )


def stored(
    number: int, *said: tuple[str | tuple[Message, ...], Score], tools: tuple[ToolSpec, ...] = ()
) -> StoredGroup:
    completions = [Completion(text=one) if isinstance(one, str) else Completion(messages=one) for one, _ in said]
    return StoredGroup(
        sequence=number,
        group=Group(
            group_id=f"g{number}",
            task_id="t",
            environment="npc_arena",
            run=None,
            lease_id=None,
            policy=Policy(model="m", step=3),
            purpose="train",
            outcome="scored",
            rollouts=tuple(
                Rollout(rollout_id=f"g{number}-{place}", completion=completion, score=score)
                for place, (completion, (_, score)) in enumerate(zip(completions, said, strict=True))
            ),
            created_at=START,
            hand_out_step=1,
        ),
        task=TaskRecord(
            task_id="t",
            key=TaskKey(
                environment="npc_arena",
                version="2",
                data_digest="d",
                split="train",
                index=0,
                params={},
                context=WITHHELD,
            ),
            prompt=TaskPrompt(messages=(Message(role="user", content="Who are you?"),), tools=tools),
            label="maelis",
        ),
    )


class Kept(ExportStore):
    """What is given, in place of what is stored."""

    def __init__(self, groups: Sequence[StoredGroup]) -> None:
        self._groups = groups

    async def read_pages(
        self, where: GroupFilter, after: int, last: int, size: int, *, with_readings: bool = False
    ) -> AsyncGenerator[list[StoredGroup], None]:
        kept = [one for one in self._groups if after < one.sequence <= last]
        for start in range(0, len(kept), size):
            yield kept[start : start + size]


async def file(groups: Sequence[StoredGroup], **wanted: object) -> bytes:
    request = ExportRequest.model_validate(wanted)
    return b"".join([piece async for piece in stream_export(Kept(groups), request, NEWEST, {"offline"})])


async def rows(groups: Sequence[StoredGroup], **wanted: object) -> list[dict[str, JsonValue]]:
    return [json.loads(line) for line in (await file(groups, **wanted)).splitlines()]


UNSCORED = Score.unscored("judge_failed")
MIXED = stored(
    1,
    ("best", judged(0.9, 0.8, 1.0)),
    ("good", judged(0.6, 0.7, 0.5)),
    ("weak", judged(0.3, 0.4, 0.0)),
    ("lost", UNSCORED),
    ("tried", judged(0.9, 0.9, 1.0, judge="offline")),
)


async def test_a_row_holds_what_the_policy_saw_and_said_and_earned() -> None:
    (row, *_) = await rows([MIXED])
    assert row == read_table(__file__, "row.yaml", dict[str, Any])


async def test_a_row_holds_the_tokens_and_what_the_trainer_added() -> None:
    sampled = Completion(text="yes", token_ids=(5, 7), logprobs=(-0.5, 0.0), extra={"lora": 3})
    made = stored(1, ("no", judged(0.1, 0.1)), ("yes", judged(0.9, 0.9)))
    first, last = made.group.rollouts
    whole = made.group.model_copy(update={"rollouts": (first, last.model_copy(update={"completion": sampled}))})
    groups = [made.model_copy(update={"group": whole})]
    table = parquet.read_table(BytesIO(await file(groups, format="parquet"))).to_pylist()
    told = [
        [(row["index"], row["token_ids"], row["logprobs"], row["extra"]) for row in read]
        for read in (await rows(groups), table)
    ]
    assert told == [[(0, [], [], "{}"), (1, [5, 7], [-0.5, 0.0], '{"lora":3}')]] * 2


async def summary(groups: Sequence[StoredGroup], **wanted: object) -> tuple[int, dict[str, int]]:
    request = ExportRequest.model_validate(wanted)
    found = await summarise_export(Kept(groups), request, NEWEST, {"offline"})
    return found.rows, {str(reason): count for reason, count in found.left_out.items()}


GATED = Score.gated("copies_prompt")
GROUPS = {
    "offline": stored(4, ("fine", judged(0.9, 0.9, judge="offline")), ("copied", GATED)),
    "sage": stored(3, ("fine", judged(0.9, 0.9)), ("copied", GATED)),
    "gated": stored(3, ("copied", GATED), ("copied", GATED)),
    "mixed": MIXED,
    "answered": stored(1, ("wrong", Score.exact(False)), ("right", Score.exact(True)), ("gated", Score.gated("empty"))),
    "again": stored(1, ("best", judged(0.9, 0.9)), ("worst", judged(0.1, 0.1))),
    "once more": stored(2, ("best", judged(0.9, 0.9)), ("worst", judged(0.1, 0.1))),
}
LEFT_OUT = read_table(__file__, "left_out.yaml", list[tuple[list[str], dict[str, object], str, dict[str, int]]])


@pytest.mark.parametrize(("groups", "wanted", "taken", "left_out"), LEFT_OUT)
async def test_what_is_in_no_row_is_counted_and_no_filter_keeps_the_failures_alone(
    groups: list[str], wanted: dict[str, object], taken: str, left_out: dict[str, int]
) -> None:
    """Of a group the best is not taken when it is worth nothing, and the same completion once."""
    given = [GROUPS[name] for name in groups]
    names = [row.get("rollout_id", row.get("chosen_id")) for row in await rows(given, **wanted)]
    assert (names, await summary(given, **wanted)) == (taken.split(), (len(names), left_out))


async def test_what_the_policy_never_saw_is_there_when_it_is_asked_for() -> None:
    plain, private = (await rows([MIXED]))[0], (await rows([MIXED], private=True))[0]
    assert {name: value for name, value in private.items() if name not in plain} == {
        "rationale": "fits",
        "notes": '{"lore":"as the sheet says"}',
        "context": json.dumps(WITHHELD.model_dump(mode="json"), sort_keys=True, separators=(",", ":")),
    }
    assert "bridge" not in (await file([MIXED])).decode()


async def test_no_score_is_null_and_in_no_other_shape() -> None:
    (lost,) = [row for row in await rows([MIXED]) if row["rollout_id"] == "g1-3"]
    assert (lost["outcome"], lost["reason"], lost["reward"], lost["value"]) == ("unscored", "judge_failed", None, None)
    others = [await rows([MIXED], shape=shape, threshold=0.0) for shape in ("sft", "kto", "dpo")]
    assert "lost" not in json.dumps(others)


@pytest.mark.parametrize(("threshold", "expected"), [(None, [True, True, False]), (0.75, [True, False, False])])
async def test_kto_has_a_verdict_on_everything_scored(threshold: float | None, expected: list[bool]) -> None:
    assert [row["label"] for row in await rows([MIXED], shape="kto", threshold=threshold)] == expected


async def pairs(*scores: Score, **wanted: object) -> list[tuple[JsonValue, JsonValue]]:
    group = stored(1, *((f"reply {place}", score) for place, score in enumerate(scores)))
    return [(row["chosen_id"], row["rejected_id"]) for row in await rows([group], shape="dpo", **wanted)]


async def test_pairs_come_by_their_margin() -> None:
    """Which is met where only rounding stands between."""
    scores = judged(0.9, 0.8), judged(0.6, 0.7), judged(0.3, 0.4)
    found = [await pairs(*scores), await pairs(*scores, pairs=9), await pairs(*scores, pairs=9, margin=0.5)]
    assert [*found, await pairs(judged(1.0, 1.0), judged(0.9, 0.9), margin=0.1)] == [
        [("g1-0", "g1-2")],
        [("g1-0", "g1-2"), ("g1-0", "g1-1"), ("g1-1", "g1-2")],
        [("g1-0", "g1-2")],
        [("g1-0", "g1-1")],
    ]


@pytest.mark.parametrize(
    "scores",
    [
        (judged(0.6, 0.6), judged(0.55, 0.5)),
        (judged(0.9, 0.4, 1.0), judged(0.6, 0.7, 0.0)),
        (judged(0.9, 0.8, 0.0), judged(0.3, 0.2, 1.0)),
        (judged(0.9, 0.8, flag="low_signal"), judged(0.3, 0.2, flag="low_signal")),
        (judged(0.9, 0.8, flag="position_dominated"), judged(0.3, 0.2, flag="position_dominated")),
        (judged(0.9, 0.8), UNSCORED),
    ],
)
async def test_no_pair_where_it_is_not_known_which_is_better(scores: tuple[Score, ...]) -> None:
    same = stored(1, ("same", judged(0.9, 0.9)), ("same", judged(0.1, 0.1)))
    assert (await pairs(*scores), await rows([same], shape="dpo")) == ([], [])


CALLED = stored(
    1,
    (
        (
            Message(role="assistant", tool_calls=(CALL,), reasoning_content="Count first."),
            Message(role="tool", content="3", tool_call_id="1"),
            Message(role="assistant", content="Three.\ud83d"),
        ),
        judged(1.0, 1.0),
    ),
    tools=(TOOL,),
)


async def test_calls_and_what_they_gave_are_messages() -> None:
    (row,) = await rows([CALLED], shape="sft")
    function = {"name": "count", "arguments": '{"of":"\\u00e9"}'}
    assert (row["completion"], json.loads(str(row["tools"]))) == (
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
                "reasoning_content": "Count first.",
            },
            {"role": "tool", "content": "3", "tool_call_id": "1"},
            {"role": "assistant", "content": "Three.\ufffd"},
        ],
        [TOOL.model_dump(mode="json")],
    )


@pytest.mark.parametrize("shape", ["rollouts", "sft", "dpo", "kto"])
async def test_parquet_says_the_same(shape: str) -> None:
    odd = "a\x00b\u2028c\ud83d \U0001f9d9 " + "long " * 500_000
    groups = [MIXED, CALLED.model_copy(update={"sequence": 2}), stored(3, (odd, judged(0.9, 0.9)), ("", judged(0, 0)))]
    groups += [stored(4 + number, ("x", UNSCORED)) for number in range(200)]
    table = parquet.read_table(BytesIO(await file(groups, shape=shape, format="parquet")))
    lines = await rows(groups, shape=shape)
    assert [_without_nulls(row) for row in table.to_pylist()] == [_without_nulls(row) for row in lines]


def _without_nulls(value: JsonValue) -> JsonValue:
    """Parquet has every column of every message; a line has those that are there."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None and one != []}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


async def test_nothing_to_export_is_a_file_all_the_same() -> None:
    table = parquet.read_table(BytesIO(await file([], shape="kto", format="parquet")))
    assert (table.num_rows, table.schema.field("label").type, await file([])) == (0, pa.bool_(), b"")


def test_what_cannot_be_is_refused() -> None:
    wrong = [{"since": START, "until": START}, {"margin": 0}, {"top_k": 0}, {"shape": "csv"}, {"since": "2026-01-01"}]
    for request in wrong:
        with pytest.raises(ValidationError):
            ExportRequest.model_validate(request)
