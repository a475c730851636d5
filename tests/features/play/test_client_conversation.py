"""What clients want, and what was said, out of the messages that they send."""

import sys
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.errors import InvalidRequest
from app.domain.values import Frozen
from app.features.play.routes import ChatRequest, ClientConversation, read_conversation
from app.features.worlds.service import ConversationTurn
from tests.support.tables import read_table
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


class Told(Frozen):
    said: tuple[tuple[str, Any], ...]
    more: dict[str, Any] = {}
    expected: dict[str, Any]

    @property
    def conversation(self) -> ClientConversation:
        read = {"wish": "turn", **self.expected, "lines": turns(*self.expected["lines"])}
        return ClientConversation(**read)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [{"role": role, "content": content} for role, content in self.said]


class Tables(Frozen):
    """The tables of conversations.yaml."""

    wanted: dict[str, Told]
    everybodys: dict[str, Told]
    nobodys: dict[str, Told]


TABLES = read_table(__file__, "conversations.yaml", Tables)


@pytest.mark.parametrize("told", TABLES.wanted.values(), ids=TABLES.wanted)
def test_what_was_said_and_what_is_wanted(told: Told) -> None:
    assert read(*told.said, **told.more) == told.conversation


def test_a_long_chat_keeps_its_newest_lines_from_the_players_on() -> None:
    """Those before are not even read."""
    said = [(("user", "assistant")[place % 2], str(place) * (2000 if place < 90 else 1)) for place in range(301)]
    lines = read(GREETING, *said).lines
    assert (len(lines), lines[0].content, lines[-1].content) == (199, "102", "300")


THOUGHT = "<think>PLAN</think>"


@pytest.mark.parametrize("told", TABLES.everybodys.values(), ids=TABLES.everybodys)
def test_everybodys_words_are_their_own(told: Told) -> None:
    request = ChatRequest.model_validate({"messages": told.messages, "stream": True})
    assert read_conversation(request, NAMES).lines == told.conversation.lines


@pytest.mark.parametrize("told", TABLES.nobodys.values(), ids=TABLES.nobodys)
def test_what_nobody_says_does_not_decide_what_is_wanted(told: Told) -> None:
    assert read_conversation(ChatRequest.model_validate({"messages": told.messages}), NAMES) == told.conversation


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
