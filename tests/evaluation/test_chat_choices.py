"""Choices in files: pairs, and swipes of SillyTavern's chats."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.labels import ImportedLabel
from app.evaluation.labelled_groups import ChoiceFile, read_choices
from tests.support.tables import read_table

ASKED = {"role": "user", "content": "Who?"}
HEADER: dict[str, Any] = {"user_name": "Sam", "character_name": "Mira", "chat_metadata": {}}


def user(text: str) -> dict[str, Any]:
    return {"name": "Sam", "is_user": True, "is_system": False, "mes": text}


def reply(*swipes: Any, shown: Any = 0, **more: Any) -> dict[str, Any]:
    said = swipes[shown] if isinstance(shown, int) and shown < len(swipes) else swipes[0]
    return {
        "name": "Mira",
        "is_user": False,
        "is_system": False,
        "mes": said,
        "swipes": swipes,
        "swipe_id": shown,
    } | more


def read(*rows: Any, name: str = "chat.jsonl") -> ChoiceFile:
    return read_choices(name, [row if isinstance(row, str) else json.dumps(row) for row in rows])


def told(label: ImportedLabel) -> tuple[str, str, tuple[str, ...], int | None]:
    return label.kind, label.choice.chosen, label.choice.rejected, label.choice.place


def test_a_turn_that_the_player_went_on_from_is_an_implicit_choice_with_the_chats_own_prompt() -> None:
    named = [{"extra": {"model": "mira@1"}}, {"extra": {"model": "mira@2"}}]
    narrator = {"name": "", "is_user": False, "is_system": True, "mes": "Rain.", "extra": {"type": "narrator"}}
    hidden = {"name": "Note", "is_user": False, "is_system": True, "mes": "Ten tokens."}
    found = read(
        "\ufeff" + json.dumps(HEADER),
        reply("Hail!", "Well met."),
        narrator,
        hidden,
        user("Who are you?"),
        reply("A guest.", "Nobody.", shown=1, swipe_info=named),
        user("I see."),
    )
    (label,) = found.labels
    assert told(label) == ("implicit", "Nobody.", ("A guest.",), 1)
    assert [(one.role, one.content) for one in label.choice.prompt] == [
        ("assistant", "Hail!"),
        ("system", "Rain."),
        ("user", "Who are you?"),
    ]
    assert (label.choice.chosen_model, label.choice.rejected_models) == ("mira@2", ("mira@1",))
    assert (label.choice.source, label.choice.chat, label.choice.may_be_edited) == ("chat.jsonl:6", "chat.jsonl", False)
    assert [(one.line, one.reason) for one in found.left_out] == [(2, "a greeting, which a person wrote")]


@pytest.mark.parametrize(
    ("turn", "after", "reason"),
    [
        (reply("a", "b"), [], "no message of the player follows: shown last is not chosen"),
        (reply("a"), [user("so")], "only one reply was offered"),
        (reply("a", "a "), [user("so")], "all swipes are the same text"),
        (reply("a", "b", shown=2), [user("so")], "swipe_id names no swipe"),
        (reply("a", "b", shown="1"), [user("so")], "swipe_id names no swipe"),
        (reply("a", "b", mes="b"), [user("so")], "mes is another swipe than swipe_id says"),
        (reply("a", "b", is_system=True), [user("so")], "a hidden line"),
        (reply("", "b"), [user("so")], "the reply is empty"),
        ("{half a line", [user("so")], "not a JSON object"),
    ],
)
def test_what_is_no_choice_is_left_out_with_its_line(turn: Any, after: list[Any], reason: str) -> None:
    found = read(HEADER, user("Who?"), turn, *after)
    assert ([(one.line, one.reason) for one in found.left_out], found.labels) == ([(3, reason)], [])


def test_a_text_that_is_no_swipe_is_an_edit_by_the_player() -> None:
    (label,) = read(HEADER, user("Who?"), reply("a", "b", shown=1, mes="my own"), user("so")).labels
    assert (*told(label), label.choice.may_be_edited) == ("edit", "my own", ("a", "b"), None, True)


def test_a_chat_with_edits_says_that_its_texts_may_be_the_players() -> None:
    header = HEADER | {"chat_metadata": {"tainted": True, "main_chat": "Mira 1"}}
    (label,) = read(header, user("Who?"), reply("a", "b"), user("so")).labels
    assert (label.choice.may_be_edited, label.choice.chat) == (True, "Mira 1")


def test_group_chats_without_a_header_name_their_speakers_and_other_exports_hold_objects() -> None:
    other = {"name": "Tom", "is_user": False, "is_system": False, "mes": {"message": "Aye."}}
    found = read(user("Hey"), other, reply({"message": "a"}, {"message": "b"}), user("so"))
    (label,) = found.labels
    assert told(label) == ("implicit", "a", ("b",), 0)
    assert [(one.role, one.name) for one in label.choice.prompt] == [("user", None), ("assistant", "Tom")]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "Who?", "chosen": "a", "rejected": "b"}, ("pair", "a", ("b",), None)),
        (
            {"messages": [{"role": "user", "content": "Who?"}], "chosen": "a", "rejected": "b"},
            ("pair", "a", ("b",), None),
        ),
        (
            {
                side: [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": side}]
                for side in ("chosen", "rejected")
            },
            ("pair", "chosen", ("rejected",), None),
        ),
    ],
)
def test_pairs_have_three_forms(row: Mapping[str, Any], expected: tuple[Any, ...]) -> None:
    (label,) = read(row).labels
    assert (told(label), label.choice.prompt[0].content) == (expected, "Who?")


@pytest.mark.parametrize(
    ("row", "reason"), read_table(__file__, "wrong_pairs.yaml", list[tuple[Mapping[str, Any], str]])
)
def test_wrong_pairs_are_left_out_with_the_field(row: Mapping[str, Any], reason: str) -> None:
    found = read(row)
    assert ([one.reason for one in found.left_out], found.labels) == ([reason], [])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (user("So.") | {"name": {"a": 1}}, "name: not a text"),
        (reply("a", "b") | {"name": ["Mira"]}, "name: not a text"),
        (reply("\ud800", "b"), "it holds half a character, a lone surrogate"),
        ("{half a line", "not a JSON object"),
    ],
)
def test_a_line_that_is_no_message_is_left_out_and_so_are_the_choices_after_it(bad: Any, reason: str) -> None:
    found = read(HEADER, user("Who?"), reply("a", "b"), user("so"), bad, user("And?"), reply("c", "d"), user("so"))
    gap = "line 5 of the chat before it could not be read"
    assert [told(one) for one in found.labels] == [("implicit", "a", ("b",), 0)]
    assert [(one.line, one.reason) for one in found.left_out] == [(5, reason), (7, gap)]
