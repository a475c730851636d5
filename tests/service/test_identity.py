"""What makes a task, a group or a stream the same one, and what does not."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from app.domain.runs import Policy
from app.domain.tasks import Completion, Context, FunctionCall, Message, Passage, TaskKey, ToolCall, Withheld
from app.domain.values import Split
from app.service.requests import build_stream, compute_group_id, compute_task_id, normalise_values

KEY = TaskKey(environment="toy", version="1", data_digest="d", split="train", index=3, params={"a": 1, "b": [2]})
PASSAGE = Passage(id="e1", text="The bridge is out.", source="event", time=datetime(2024, 5, 1, tzinfo=UTC))
CONTEXT = Context(passages=(PASSAGE,))
TASK = "task_" + "0" * 32
TEXTS = st.lists(st.text(max_size=8), min_size=1, max_size=5)
SAID = tuple(Completion(text=text) for text in ("one", "two"))


def test_a_task_keeps_its_id_for_ever() -> None:
    assert compute_task_id(KEY) == "task_5fbce08731ec39365fd4ee2118317142"
    assert compute_task_id(KEY.model_copy(update={"context": CONTEXT})) == "task_7f952a8502834e5802c36b74cf7d6295"


def test_the_order_of_params_is_no_part_of_a_task() -> None:
    assert compute_task_id(KEY.model_copy(update={"params": {"b": [2], "a": 1}})) == compute_task_id(KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"environment": "toy2"},
        {"version": "2"},
        {"data_digest": "e"},
        {"split": "test"},
        {"index": 4},
        {"params": {"a": 1, "b": [3]}},
        {"params": {"a": True, "b": [2]}},
        {"params": {"a": "1", "b": [2]}},
        {"params": {}},
        {"context": Context()},
        {"context": CONTEXT},
        {"context": Context(withheld=(Withheld(id="e1", reason="too late"),))},
        {"context": Context(passages=(PASSAGE.model_copy(update={"time": None}),))},
    ],
    ids=str,
)
def test_whatever_a_task_is_made_from_changes_its_id(change: dict[str, object]) -> None:
    assert compute_task_id(KEY.model_copy(update=change)) != compute_task_id(KEY)


def call(arguments: str | dict[str, JsonValue]) -> Completion:
    said = Message(role="assistant", tool_calls=(ToolCall(function=FunctionCall(name="look", arguments=arguments)),))
    return Completion(messages=(said,))


DIFFERENT_GROUPS: dict[str, str] = {
    "base": compute_group_id(TASK, "run", None, "train", SAID),
    "task": compute_group_id("task_" + "1" * 32, "run", None, "train", SAID),
    "holder": compute_group_id(TASK, "lease_" + "0" * 32, None, "train", SAID),
    "no holder": compute_group_id(TASK, "", None, "train", SAID),
    "model": compute_group_id(TASK, "run", Policy(model="m"), "train", SAID),
    "other model": compute_group_id(TASK, "run", Policy(model="n"), "train", SAID),
    "step": compute_group_id(TASK, "run", Policy(model="m", step=1), "train", SAID),
    "step zero": compute_group_id(TASK, "run", Policy(model="m", step=0), "train", SAID),
    "purpose": compute_group_id(TASK, "run", None, "eval", SAID),
    "order": compute_group_id(TASK, "run", None, "train", SAID[::-1]),
    "fewer": compute_group_id(TASK, "run", None, "train", SAID[:1]),
    "more": compute_group_id(TASK, "run", None, "train", (*SAID, SAID[0])),
    "one text": compute_group_id(TASK, "run", None, "train", (Completion(text="onetwo"),)),
    "truncated": compute_group_id(
        TASK, "run", None, "train", (Completion(text="one", finish_reason="length"), SAID[1])
    ),
    "stopped": compute_group_id(TASK, "run", None, "train", (Completion(text="one", finish_reason="stop"), SAID[1])),
    "messages": compute_group_id(
        TASK, "run", None, "train", (Completion(messages=(Message(role="assistant", content="one"),)), SAID[1])
    ),
    "tool call": compute_group_id(TASK, "run", None, "train", (call({"at": 1}),)),
    "other arguments": compute_group_id(TASK, "run", None, "train", (call({"at": 2}),)),
    "arguments as text": compute_group_id(TASK, "run", None, "train", (call('{"at": 1}'),)),
}


def test_whatever_is_scored_makes_a_scoring_another_one() -> None:
    assert len(set(DIFFERENT_GROUPS.values())) == len(DIFFERENT_GROUPS)


def test_what_is_only_kept_beside_a_completion_does_not() -> None:
    decorated = tuple(
        completion.model_copy(update={"token_ids": (1, 2), "logprobs": (-0.1, -0.2), "extra": {"seed": 7}})
        for completion in SAID
    )
    assert compute_group_id(TASK, "run", None, "train", decorated) == compute_group_id(TASK, "run", None, "train", SAID)


@given(one=TEXTS, other=TEXTS)
def test_scorings_are_the_same_exactly_when_the_ordered_texts_are(one: list[str], other: list[str]) -> None:
    identities = [
        compute_group_id(TASK, "run", None, "train", [Completion(text=text) for text in texts])
        for texts in (one, other)
    ]
    assert (identities[0] == identities[1]) == (one == other)


def stream(
    environment: str = "toy",
    split: Split = "train",
    params: dict[str, JsonValue] | None = None,
    select: dict[str, tuple[JsonValue, ...]] | None = None,
) -> str:
    return build_stream("run", environment, split, params or {}, select or {}).digest


def test_streams_differ_by_environment_split_params_and_selection_only() -> None:
    different = [
        stream(),
        stream(environment="slow"),
        stream(split="test"),
        stream(params={"a": 1}),
        stream(select={"level": ("hard",)}),
        stream(select={"level": ("hard", "easy")}),
        stream(select={"kind": ("hard",)}),
    ]
    assert len(set(different)) == len(different)
    assert stream(params={"a": 1, "b": 2}) == stream(params={"b": 2, "a": 1})
    assert build_stream("run", "toy", "train", {}, {}).digest == build_stream("other", "toy", "train", {}, {}).digest


def test_values_are_compared_as_json_values() -> None:
    given: list[JsonValue] = [1.0, "1", 1, True, 2.5, {"b": [1.0], "a": None}, {"a": None, "b": [1]}]
    assert list(map(repr, normalise_values(given))) == ["'1'", "1", "2.5", "True", "{'a': None, 'b': [1]}"]


@pytest.mark.parametrize("values", [("easy", "hard"), ("hard", "easy"), ("hard", "easy", "hard")])
def test_a_selection_is_a_set(values: tuple[str, ...]) -> None:
    chosen = build_stream("run", "toy", "train", {}, {"level": values})
    assert chosen.digest == build_stream("run", "toy", "train", {}, {"level": ("easy", "hard")}).digest
