"""What clients want, and what was said, out of the messages that they send."""

import sys
from collections import Counter

import pytest

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


def test_the_clients_prompt_and_the_greeting_are_left_out() -> None:
    expected = ClientConversation("turn", turns("Is the ferry running?"), dropped=10)
    assert read(GREETING, ASKED) == expected


def test_a_long_chat_keeps_its_newest_lines_from_the_players_on() -> None:
    said = [(("user", "assistant")[place % 2], str(place)) for place in range(301)]
    lines = read(GREETING, *said).lines
    assert (len(lines), lines[0].content, lines[-1].content) == (199, "102", "300")


def test_a_narrators_line_stands_in_brackets_where_it_was() -> None:
    read_on = read(ASKED, ("assistant", "No."), ("system", "The bell rings."), ("user", "What is that?"))
    expected = turns("Is the ferry running?", "No.", "[The bell rings.]\nWhat is that?")
    assert read_on == ClientConversation("turn", expected, dropped=10)


def test_what_a_narrator_says_last_is_an_event() -> None:
    expected = ClientConversation("turn", turns("Is the ferry running?", "No."), event="The bell rings.", dropped=10)
    assert read(ASKED, ("assistant", "No."), ("system", "The bell rings.")) == expected


def test_instructions_behind_the_players_line_are_dropped() -> None:
    assert read(ASKED, control="Write dark prose.") == ClientConversation("turn", turns(ASKED[1]), dropped=11)


def test_without_a_narrator_all_system_messages_are_dropped() -> None:
    found = read(ASKED, ("system", "Style: terse."), ("assistant", "No."), ("user", "Why?"), play={"narrator": False})
    assert found == ClientConversation("turn", turns("Is the ferry running?", "No.", "Why?"), dropped=11)


@pytest.mark.parametrize(
    "found",
    [
        read(ASKED, ("assistant", "The rope"), control=CONTINUE.format("The rope")),
        read(ASKED, control=CONTINUE.format("The rope")),
        read(ASKED, ("assistant", "The rope")),
    ],
    ids=["nudge", "nudge alone", "prefill"],
)
def test_a_reply_is_continued(found: ClientConversation) -> None:
    assert found == ClientConversation("continue", turns(ASKED[1]), beginning="The rope", dropped=10)


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


def test_in_a_group_the_last_order_names_who_speaks() -> None:
    found = read(
        ("user", "User: Who rows?"),
        ("assistant", "Ottoline Vesk: Not I."),
        ("assistant", "Hob Tarrant: I do."),
        ("user", "User: Then row."),
        control="[Write the next reply only as Hob Tarrant.]",
    )
    expected = turns("Who rows?\n[Ottoline Vesk] Not I.", "I do.", "Then row.")
    assert found == ClientConversation("turn", expected, speaker="hob_tarrant", dropped=10)


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


def test_lines_before_those_that_are_shown_are_not_read() -> None:
    said = [(("user", "assistant")[place % 2], "x" * (5000 if place < 90 else 1)) for place in range(301)]
    assert len(read(*said).lines) == 199
