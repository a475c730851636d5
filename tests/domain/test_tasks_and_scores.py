"""Completions, messages and scores: what they refuse, and what is read from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from app.domain.scores import Criterion, Outcome, Reason, Score, explain_score
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.domain.values import Frozen
from tests.support.tables import read_table, unfold


class Tables(Frozen):
    refused: tuple[tuple[dict[str, object], str], ...]
    sound: tuple[dict[str, object], ...]
    ends: dict[str, dict[str, tuple[str | None, ...]]]
    usual: tuple[Score, ...]
    answers: tuple[tuple[Completion, str], ...]


TABLES = read_table(__file__, "completions.yaml", Tables)

SAID = Message(role="assistant", content="42")


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        *TABLES.refused,
        ({"text": "a", "token_ids": [10**400]}, "less than 4294967296"),
        ({"text": "a", "token_ids": [1], "logprobs": [float("-inf")]}, "finite number"),
        ({"text": "a", "extra": {"x": float("nan")}}, "not a finite number"),
    ],
)
def test_a_completion_that_is_none(given_: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Completion.model_validate(given_)


@pytest.mark.parametrize("given_", TABLES.sound)
def test_a_completion_says_the_same_again(given_: dict[str, object]) -> None:
    completion = Completion.model_validate(given_)
    assert Completion.model_validate_json(completion.model_dump_json()) == completion


@pytest.mark.parametrize(("completion", "answer"), TABLES.answers)
def test_the_answer_is_what_the_model_said_last(completion: Completion, answer: str) -> None:
    assert completion.answer == answer


@pytest.mark.parametrize(
    ("text", "finish_reason", "kind"),
    [
        *((text, reason, kind) for kind, texts in TABLES.ends.items() for reason, text in unfold(texts)),
        ("a", "error" + "_" * 1000, "broken off"),
    ],
)
def test_a_completion_ended_or_was_cut_off_or_broke_off(text: str, finish_reason: str | None, kind: str) -> None:
    told = Completion(text=text, finish_reason=finish_reason)
    said = Completion(messages=(Message(role="assistant", content=text),), finish_reason=finish_reason)
    kinds = {(True, False): "cut off", (False, True): "broken off", (False, False): "ended"}
    assert [kinds[one.truncated, one.broken_off] for one in (told, said)] == [kind, kind]


def test_an_observation_is_not_what_the_model_said() -> None:
    said, told = Message(role="assistant", content=""), Message(role="tool", content="42", tool_call_id="c")
    assert Completion(messages=(said, told), finish_reason="odd").broken_off


def test_a_call_is_not_nothing() -> None:
    call = ToolCall(function=FunctionCall(name="look", arguments="{}"))
    assert not Completion(messages=(Message(role="assistant", tool_calls=(call,)),), finish_reason="odd").broken_off


def test_a_null_is_an_absent_part_as_clients_of_openai_write_it() -> None:
    """Only a null: an unknown part that says something is refused."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    dumped = {"role": "assistant", "content": None, "refusal": None, "audio": None, "function_call": None}
    read = [Message.model_validate({**dumped, "tool_calls": calls}) for calls in (None, [], [call])]
    assert read == [
        Message(role="assistant"),
        Message(role="assistant"),
        Message(role="assistant", tool_calls=(ToolCall.model_validate(call),)),
    ]
    with pytest.raises(ValidationError, match="refusal"):
        Message.model_validate({**dumped, "refusal": "No."})


def test_what_servers_add_to_a_message_is_taken_as_what_it_is() -> None:
    """Thinking that was taken out of the answer, the place of a call in a stream, lists with nothing in them."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": "42", "annotations": []}
    read = [
        Message.model_validate({**said, "reasoning_content": "Six by seven."}),
        Message.model_validate({**said, "reasoning": "Six by seven."}),
        Message.model_validate({**said, "reasoning": "Six by seven.", "reasoning_content": "Six by seven."}),
        Message.model_validate({**said, "tool_calls": [{**call, "index": 0}]}),
    ]
    thought = SAID.model_copy(update={"reasoning_content": "Six by seven."})
    calling = SAID.model_copy(update={"tool_calls": (ToolCall.model_validate(call),)})
    assert read == [thought, thought, thought, calling]


@pytest.mark.parametrize("arguments", [5, None, [1], True])
def test_arguments_of_a_call_may_be_whatever_a_model_wrote(arguments: JsonValue) -> None:
    """It is the model's fault, so a verifier sees it; the request is not refused for it."""
    assert FunctionCall.model_validate({"name": "f", "arguments": arguments}).arguments == arguments


def test_absent_parts_of_a_message_are_left_out() -> None:
    assert SAID.model_dump() == {"role": "assistant", "content": "42"}
    calling = Message(role="assistant", tool_calls=(ToolCall(function=FunctionCall(name="f", arguments={"a": 1})),))
    assert calling.model_dump(mode="json") == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
    }


@given(
    outcome=st.sampled_from(["scored", "pending", "unscored"]),
    reason=st.none() | st.sampled_from(["judge_failed", "internal"]),
    reward=st.none() | st.floats(0, 1),
)
def test_a_score_has_a_reward_or_a_reason_or_is_pending(
    outcome: Outcome, reason: Reason | None, reward: float | None
) -> None:
    consistent = {
        "scored": reward is not None and reason is None,
        "unscored": reward is None and reason is not None,
        "pending": reward is None and reason is None,
    }[outcome]
    if consistent:
        assert Score(outcome=outcome, reason=reason, reward=reward).reward == reward
    else:
        with pytest.raises(ValidationError, match="exactly when its outcome is"):
            Score(outcome=outcome, reason=reason, reward=reward)


@pytest.mark.parametrize("reward", [-1.1e9, 1.1e9, float("nan"), float("inf")])
def test_a_reward_is_a_finite_number(reward: float) -> None:
    with pytest.raises(ValidationError):
        Score(outcome="scored", reward=reward)


def test_a_score_explains_itself_in_a_sentence() -> None:
    judged = Score(
        outcome="scored", reward=0.2, gate=1.0, absolute=0.5, relative=0.8, relative_weight=0.5, cap=0.2,
        criteria=(
            Criterion(name="lore_accuracy", value=0.2, weight=0.5),
            Criterion(name="engagingness", value=0.8, weight=0.5),
        ),
        judges=("careful",),
    )  # fmt: skip
    said = {
        explain_score(score)
        for score in (
            Score.pending(),
            Score.unscored("budget"),
            Score.gated("empty", rationale="Not judged, because the reply says nothing."),
            Score.gated("empty"),
            Score.exact(False, rationale="read 3 from the #### line; wrong"),
            Score.exact(True),
            judged,
        )
    }
    assert said == {
        "Not scored yet.",
        "No score: The judge's budget is used up.",
        "Not judged, because the reply says nothing.",
        "A check failed: empty.",
        "Read 3 from the #### line; wrong.",
        "Correct 1.00.",
        "Judged 0.50 by itself: most for engagingness (0.80), least for lore accuracy (0.20). Beside the other replies "
        "it stands above the middle (0.80). A defect that the judges reported caps the reward at 0.20.",
    }


def test_the_usual_scores() -> None:
    made = (
        Score.exact(True, "right", "as expected"),
        Score.exact(False),
        Score.gated("truncated", "repeats", rationale="cut off"),
        Score.unscored("budget", "spent"),
        Score.pending(),
    )
    assert made == TABLES.usual
