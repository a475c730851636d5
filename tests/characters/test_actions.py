"""Actions of a character: calls are read however they are written, verified apart, and mixed into the score."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from app.characters.actions import (
    ACTION_SHARE,
    SceneActs,
    SpokenReply,
    find_acts_fault,
    find_untold,
    list_tools,
    read_reply,
    score_silence,
    verify_calls,
    write_reply,
)
from app.characters.scenes import SceneSet
from app.characters.schema import Actions
from app.domain.scores import ACTION, Criterion, Score, VerifiedPart, add_part, combine, explain_score
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.toolkit.tool_calls.calls import ParsedCall
from tests.support.tables import read_table

TABLE = read_table(__file__, "actions.yaml", dict[str, Any])
ACTIONS = Actions.model_validate(TABLE["actions"])
RIGHT = SceneActs.model_validate(TABLE["acts"])
TOOLS = list_tools(ACTIONS, RIGHT)
BELL = ToolCall(function=FunctionCall(name="ring_bell", arguments="{}"))


def part(value: float, note: str, flags: tuple[str, ...] = (), cap: float | None = None) -> VerifiedPart:
    return VerifiedPart(ACTION, ACTION_SHARE, value, note, flags, cap)


def change_acts(changes: dict[str, Any]) -> SceneActs:
    return SceneActs.model_validate({**TABLE["acts"], **changes})


def parse_calls(told: list[str]) -> SpokenReply:
    named = [one.partition(" ") for one in told if one[0] != "!"]
    calls = tuple(ParsedCall(name=name, arguments=json.loads(arguments)) for name, _, arguments in named)
    return SpokenReply("Here.", calls, tuple(one[1:] for one in told if one[0] == "!"))


def tell(reply: SpokenReply) -> list[str]:
    calls = [f"{call.name} {json.dumps(call.arguments)}" for call in reply.calls]
    return [reply.line, *calls, *(f"!{fault}" for fault in reply.malformed)]


@pytest.mark.parametrize("text", TABLE["replies"])
def test_a_text_is_taken_apart_into_line_and_calls(text: str) -> None:
    reply = read_reply(Completion(text=text), TOOLS)
    told = TABLE["replies"][text]
    assert (tell(reply), reply.is_silent) == (told, len(told) > 1 and not told[0])


@pytest.mark.parametrize(
    ("content", "arguments", "told"),
    read_table(__file__, "calls_of_messages.yaml", list[tuple[str | None, str, list[str]]]),
)
def test_calls_of_a_message_are_read_beside_its_line(content: str | None, arguments: str, told: list[str]) -> None:
    call = BELL.model_copy(update={"function": FunctionCall(name="ring_bell", arguments=arguments)})
    thought = "[ring_bell]"
    message = Message(role="assistant", content=content, tool_calls=(call,), reasoning_content=thought)
    assert tell(read_reply(Completion(messages=(message,)), TOOLS)) == told


MARKS = read_table(__file__, "marks.yaml", list[str])


@given(st.lists(st.sampled_from(MARKS), max_size=30).map("".join))
def test_any_text_is_a_reply(text: str) -> None:
    reply = read_reply(Completion(text=text), TOOLS)
    verified = verify_calls(reply, RIGHT, TOOLS, ACTIONS.at_most)
    assert len(reply.line) <= len(text)
    assert (verified.value < 1.0) or not reply.malformed


def test_a_text_longer_than_any_line_is_words() -> None:
    text = '{"name": "ring_bell", "arguments": {}} ' * 3000
    assert tell(read_reply(Completion(text=f"Aye. {text}"), TOOLS)) == [f"Aye. {text}".strip()]


@pytest.mark.parametrize(("changes", "made", "value", "note", "flags"), TABLE["verified"])
def test_calls_are_worth_what_they_have_of_a_right_set(
    changes: dict[str, Any], made: list[str], value: float, note: str, flags: list[str]
) -> None:
    verified = verify_calls(parse_calls(made), change_acts(changes), TOOLS, ACTIONS.at_most)
    cap = 0.2 if "forbidden_action" in flags else None
    assert verified == part(pytest.approx(value, abs=1e-4), note, tuple(flags), cap)  # type: ignore[arg-type]


@pytest.mark.parametrize(("changes", "fault"), TABLE["faults"])
def test_what_does_not_fit_the_sheet_is_named_by_its_field(changes: dict[str, Any], fault: str) -> None:
    assert str(find_acts_fault(ACTIONS, change_acts(changes)) or "") == fault


def test_replies_that_calls_do_not_tell_apart_are_named() -> None:
    looks = [{"name": "look_around"}]
    tempting = [{"say": say, "why": "so"} for say in ("[ring_bell] Aye.", "No.", "[look_around] Aye.")]
    acts = change_acts({"right": [[], looks], "tempting": tempting})
    assert [str(one) for one in find_untold(ACTIONS, acts, "Aye. [ring_bell]")] == [
        "exemplar: with the right calls it earns 0.00 of the action: no tool fits, and there is a call",
        "acts.tempting.2: its calls are right, so the reply is paid for them",
    ]


@pytest.mark.parametrize(
    ("character", "change", "fault"),
    [
        ("hob", {"may": ["ring_bell"]}, "may: 'ring_bell' is in a right set, so it does count"),
        ("hob", {"never": [{"name": "ring_bell"}]}, "never: 'ring_bell' is in a right set"),
        (None, {}, "acts.right.0.0: a scene for any character adds 'give_item' in `more` itself"),
    ],
)
def test_a_scene_that_contradicts_itself_is_refused(character: str | None, change: dict[str, Any], fault: str) -> None:
    scene = {"id": "a", "kind": "action", "split": "train", "player": "Well?", "acts": {**TABLE["acts"], **change}}
    with pytest.raises(ValueError, match=fault):
        SceneSet.model_validate({"character": character, "scenes": [scene]})


LINE = read_table(__file__, "line_score.yaml", Score)


def test_the_action_is_mixed_into_every_part_of_the_score() -> None:
    score = add_part(LINE, part(1.0, "the calls are right"))
    parts = [score.reward, score.absolute, score.relative, *(one.weight for one in score.criteria)]
    assert parts == pytest.approx([0.65, 0.58, 0.72, 0.7, 0.0, 0.3])
    assert score.criteria[-1] == Criterion(name="action", value=1.0, weight=0.3, note="the calls are right")
    assert explain_score(score) == (
        "Judged 0.40 by itself. Beside the other replies it stands above the middle (0.60). "
        "Its action scores 1.00 (30% of the reward): the calls are right."
    )


@pytest.mark.parametrize(
    ("line", "verified", "reward", "ends"),
    [
        ({"cap": 0.3}, part(1.0, "right"), 0.3, "A defect that the judges reported caps the reward at 0.30."),
        (
            {},
            part(0.0, "wrong", ("forbidden_action",), 0.2),
            0.2,
            "is forbidden here caps the reward at 0.20.",
        ),
        (
            {"cap": 0.1},
            part(0.0, "wrong", ("forbidden_action",), 0.2),
            0.1,
            "A defect that the judges reported caps the reward at 0.10.",
        ),
        ({"relative": None, "relative_weight": None}, part(0.0, "wrong"), 0.28, "of the reward): wrong."),
        ({"gate": 0.0, "reward": 0.0}, part(1.0, "right"), 0.0, "."),
    ],
)
def test_caps_and_gates_bound_line_and_action_together(
    line: dict[str, Any], verified: VerifiedPart, reward: float, ends: str
) -> None:
    score = add_part(LINE.model_copy(update=line), verified)
    cap = 1.0 if score.cap is None else score.cap
    followed = combine(
        score.gate or 0.0, score.absolute or 0.0, score.relative or 0.0, score.relative_weight or 0.0, cap
    )
    assert [score.reward, followed] == pytest.approx([reward, reward])
    assert explain_score(score).endswith(ends)
    assert score.flags == verified.flags


def test_of_calls_without_words_the_action_alone_counts() -> None:
    forbidden = part(1.0, "right", ("no_words", "forbidden_action"), 0.2)
    scores = [score_silence(one) for one in (part(0.5, "half", ("no_words",)), forbidden)]
    assert [(score.reward, score.absolute, score.cap) for score in scores] == [(0.15, 0.15, None), (0.2, 0.3, 0.2)]
    assert explain_score(scores[0]) == "Nothing is said, so the action alone counts, 30% of the reward: half."


def test_what_was_written_is_read_back() -> None:
    calls = (ParsedCall(name="give_item", arguments={"item": "rope", "to": "player"}), ParsedCall(name="ring_bell"))
    sent = write_reply("Here.", calls).model_dump_json()
    read = read_reply(TypeAdapter(Completion).validate_json(sent), TOOLS)
    assert read == SpokenReply("Here.", calls)
