"""What clients want, and what was said, out of the messages that they send."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.errors import InvalidRequest
from app.features.play.routes import ChatRequest, ClientConversation, read_conversation
from app.features.worlds.service import ConversationTurn
from tests.support.talking import build_tavern_body

NAMES = {"hob tarrant": "hob_tarrant", "hob_tarrant": "hob_tarrant", "ottoline vesk": "ottoline_vesk"}
ASKED = ("user", "Is the ferry running?")
GREETING = ("assistant", "Mind the step.")
CONTINUE = (
    "[Continue the following message. Do not include ANY parts of the original message. Use capitalization and "
    "punctuation as if your reply is a part of the original message: {}]"
)


def read(*said: tuple[str, str], control: str = "", **more: object) -> ClientConversation:
    body = build_tavern_body("hob_tarrant@warm", *said, control=control, **more)
    return read_conversation(ChatRequest.model_validate(body), NAMES)


def turns(*texts: str) -> tuple[ConversationTurn, ...]:
    return tuple(
        ConversationTurn(role="assistant" if place % 2 else "user", content=text) for place, text in enumerate(texts)
    )


NO, BELL, WHY = ("assistant", "No."), ("system", "The bell rings."), ("user", "Why?")
ROPE, NUDGE = ("assistant", "The rope"), CONTINUE.format("The rope")
CONTINUED = ClientConversation("continue", turns(ASKED[1]), beginning="The rope", dropped=10)
OF_A_GROUP = (
    *(("user", "User: Who rows?"), ("assistant", "Ottoline Vesk: Not I.")),
    *(("assistant", "Hob Tarrant: I do."), ("user", "User: Then row.")),
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (read(GREETING, ASKED), ClientConversation("turn", turns(ASKED[1]), dropped=10)),
        (
            read(ASKED, NO, BELL, WHY),
            ClientConversation("turn", turns(ASKED[1], "No.", "[The bell rings.]\nWhy?"), dropped=10),
        ),
        (
            read(ASKED, NO, BELL),
            ClientConversation("turn", turns(ASKED[1], "No."), event="The bell rings.", dropped=10),
        ),
        (read(ASKED, control="Write dark prose."), ClientConversation("turn", turns(ASKED[1]), dropped=11)),
        (
            read(ASKED, ("system", "Style: terse."), NO, WHY, play={"narrator": False}),
            ClientConversation("turn", turns(ASKED[1], "No.", "Why?"), dropped=11),
        ),
        (read(ASKED, ROPE, control=NUDGE), CONTINUED),
        (read(ASKED, control=NUDGE), CONTINUED),
        (read(ASKED, ROPE), CONTINUED),
        (
            read(*OF_A_GROUP, control="[Write the next reply only as Hob Tarrant.]"),
            ClientConversation(
                "turn",
                turns("Who rows?\n[Ottoline Vesk] Not I.", "I do.", "Then row."),
                speaker="hob_tarrant",
                dropped=10,
            ),
        ),
    ],
    ids=[
        *("prompt and greeting are left out", "narrator amid", "narrator last", "instructions behind are dropped"),
        *("no narrator", "nudge", "nudge alone", "prefill", "the last order names who speaks"),
    ],
)
def test_what_was_said_and_what_is_wanted(found: ClientConversation, expected: ClientConversation) -> None:
    assert found == expected


def test_a_long_chat_keeps_its_newest_lines_from_the_players_on() -> None:
    """Those before are not even read."""
    said = [(("user", "assistant")[place % 2], str(place) * (2000 if place < 90 else 1)) for place in range(301)]
    lines = read(GREETING, *said).lines
    assert (len(lines), lines[0].content, lines[-1].content) == (199, "102", "300")


THOUGHT = "<think>PLAN</think>"
DETAILS = '<details type="reasoning" done="true"><summary>Thought</summary>PLAN</details>'
PARTS = [{"type": "text", "text": None}, None, {"type": "image_url", "image_url": {"url": "x"}}, "Is", 5]
THINKING_PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "PLAN"}]}, {"type": "text", "text": "No."}]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((ASKED, ("assistant", f"{THOUGHT}No."), WHY), turns(ASKED[1], "No.", "Why?")),
        ((ASKED, ("model", "PLAN</think>No."), WHY), turns(ASKED[1], "No.", "Why?")),
        ((ASKED, ("Char", f"{DETAILS}No."), WHY), turns(ASKED[1], "No.", "Why?")),
        ((ASKED, ("assistant", THINKING_PARTS), WHY), turns(ASKED[1], "No.", "Why?")),
        ((ASKED, ("ai", THOUGHT), WHY), turns(f"{ASKED[1]}\nWhy?")),
        ((("human", f"{THOUGHT}Is it?"), NO, ("player", "Why?")), turns(f"{THOUGHT}Is it?", "No.", "Why?")),
        ((ASKED, ("assistant", ""), ("tool", '{"wind": 12}')), turns(ASKED[1])),
        ((ASKED, NO, ("function", "12"), WHY, ("tool_result", [{"text": "12"}])), turns(ASKED[1], "No.", "Why?")),
        ((ASKED, NO, ("narrator", "The bell rings."), WHY), turns(ASKED[1], "No.", "[The bell rings.]\nWhy?")),
        (
            (("user", [*PARTS, {"type": "input_text", "text": {"value": "it?"}}]), NO, WHY),
            turns("Is\nit?", "No.", "Why?"),
        ),
    ],
    ids=[
        *("thought", "thought that the prompt opened", "thought of Open WebUI", "thought as a part", "thought alone"),
        *("a player's tags", "tool result", "results amid", "narrator", "parts without a text"),
    ],
)
def test_everybodys_words_are_their_own(
    said: Sequence[tuple[str, Any]], expected: tuple[ConversationTurn, ...]
) -> None:
    messages = [{"role": role, "content": content} for role, content in said]
    request = ChatRequest.model_validate({"messages": messages, "stream": True})
    assert read_conversation(request, NAMES).lines == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((ASKED, ("assistant", "<think>\n")), ClientConversation("turn", turns(ASKED[1]))),
        ((ASKED, ("assistant", THOUGHT)), ClientConversation("turn", turns(ASKED[1]))),
        ((ASKED, ROPE, ("tool", "42")), ClientConversation("continue", turns(ASKED[1]), beginning="The rope")),
        ((ASKED, ROPE, ("assistant", THOUGHT)), ClientConversation("continue", turns(ASKED[1]), beginning="The rope")),
    ],
    ids=["thought that is open", "thought alone", "tool result behind a line", "thought behind a line"],
)
def test_what_nobody_says_does_not_decide_what_is_wanted(
    said: Sequence[tuple[str, str]], expected: ClientConversation
) -> None:
    messages = [{"role": role, "content": content} for role, content in said]
    assert read_conversation(ChatRequest.model_validate({"messages": messages}), NAMES) == expected


def test_thoughts_are_left_out_of_what_is_passed_on_too() -> None:
    listed = [{"role": "model", "content": f"{THOUGHT}No."}, {"role": "tool", "content": None}]
    assert ChatRequest.model_validate({"messages": listed}).raw_messages == [
        {"role": "assistant", "content": "No."},
        {"role": "tool", "content": ""},
    ]


@pytest.mark.parametrize("message", [{"role": "spectator", "content": "Aye."}, {"role": "user", "content": 5}])
def test_what_nobody_may_have_said_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ChatRequest.model_validate({"messages": [message]})


@pytest.mark.parametrize(
    ("found", "wish"),
    [
        (read(ASKED, control="[Write your next reply from the point of view of User, using the chat]"), "impersonate"),
        (read(ASKED, ("assistant", "No."), control="Summarise the chat in 50 words.", stream=False), "quiet"),
        (read(("user", "### Task:\nGenerate a title. Respond with ONLY the title."), stream=False), "helper"),
        (read(("user", "Hob?"), stream=False, response_format={"type": "json_object"}), "helper"),
        (read(ASKED, play={"kind": "raw"}), "raw"),
        (read(ASKED, control="Summarise.", stream=False, play={"kind": "turn"}), "turn"),
    ],
)
def test_what_is_no_turn_is_told_apart(found: ClientConversation, wish: str) -> None:
    assert found.wish == wish


@pytest.mark.parametrize(
    ("said", "control"),
    [((), ""), ((ASKED,), "[Write the next reply only as Nobody.]"), ((GREETING,), CONTINUE.format("Mind"))],
)
def test_what_cannot_be_answered_is_refused(said: tuple[tuple[str, str], ...], control: str) -> None:
    with pytest.raises(InvalidRequest):
        read(*said, control=control)


@pytest.mark.parametrize(
    "messages",
    [
        [*[("user", "Aye. " * 10)] * 2000, *[("system", f"{CONTINUE[:-3]} {'original message: ' * 10}")] * 2998],
        [("user", "Hob?"), ("assistant", "A"), ("system", CONTINUE[:-3] + "original message: " * 60_000)],
        [*[("user", "x" * 200), ("assistant", "")] * 2500, ("user", "x")],
        [("user", "Hob?"), *[("system", "y" * 200)] * 4999],
    ],
    ids=["orders", "quotes", "lines", "notes"],
)
def test_a_hostile_megabyte_is_read_in_one_pass(messages: list[tuple[str, str]]) -> None:
    listed = [{"role": role, "content": text} for role, text in messages[:5000]]
    request = ChatRequest.model_validate({"messages": listed, "stream": True})
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        read_conversation(request, NAMES)
    except (ValueError, InvalidRequest):
        pass  # too long a line, or nothing to continue
    finally:
        sys.setprofile(None)
    assert calls["call"] + calls["c_call"] < 40 * len(listed) + 500
