"""Thoughts are told from what is said, in every form of the table and wherever a stream is cut."""

from collections.abc import Iterable

import pytest

from app.toolkit.thoughts import (
    FAMILIES,
    LONGEST_TAG,
    THINKING_TAG,
    THINKING_TAGS,
    TURN_END,
    TURN_ENDS,
    ThoughtFamily,
    ThoughtSplitter,
    shows_thought,
    split_thoughts,
    strip_leading_thoughts,
)

START = "<|start|>assistant"
TEXTS = {
    "Aye.": ("", "Aye."),
    " <b>Aye</b>": ("", " <b>Aye</b>"),
    "<think>He lies.</think>\n\nAye.": ("He lies.", "Aye."),
    "[THINK]He lies.[/THINK]Aye.": ("He lies.", "Aye."),
    "\u25c1think\u25b7He lies.\u25c1/think\u25b7 Aye.": ("He lies.", "Aye."),
    "<|channel|>analysis<|message|>He lies.<|channel|>final<|message|>Aye.": ("He lies.", "Aye."),
    f"{START}<|channel|>analysis<|message|>He lies.{START}<|channel|>final<|message|>Aye.<|return|>": (
        "He lies.",
        "Aye.",
    ),
    "<|channel>thought\nHe lies.<channel|>Aye.<turn|>": ("\nHe lies.", "Aye."),
    "<|START_THINKING|>He lies.<|END_THINKING|><|START_RESPONSE|>Aye.<|END_RESPONSE|>": ("He lies.", "Aye."),
    "<|begin_of_thought|>He lies.<|end_of_thought|> <|begin_of_solution|>Aye.<|end_of_solution|>": ("He lies.", "Aye."),
    "<seed:think>He lies.</seed:think>Aye.": ("He lies.", "Aye."),
    '<details type="reasoning" done="true" duration="2">\nHe lies.</details>Aye.': ("\nHe lies.", "Aye."),
    "<details><summary>Tale</summary>Aye.</details>": ("", "<details><summary>Tale</summary>Aye.</details>"),
    "<|channel>thought He </think> lies.<channel|>Aye.": (" He </think> lies.", "Aye."),
    "<Thinking >He lies.</THINKING  >Aye.": ("He lies.", "Aye."),
    "\n<think></think>Aye.": ("", "Aye."),
    "<think>a < b </thin": ("a < b </thin", ""),
    "[Ottoline] Aye. <": ("", "[Ottoline] Aye. <"),
    "<thi": ("", "<thi"),
    "Aye.<think>He lies.</think> No.": ("He lies.", "Aye.\n No."),
    "Aye.<|im_end|>\n<|im_start|>user\nNo?": ("", "Aye."),
    "<think>He lies.</s></think>Aye.[EOS] No.": ("He lies.</s>", "Aye."),
    "Aye.<think>He lies.</think>No.<eot><|eot_id|>": ("He lies.", "Aye.\nNo."),
    "</s>Aye.": ("", ""),
    "Aye. <|IM_END|> <|end</S>": ("", "Aye. <|IM_END|> <|end</S>"),
    "  ": ("", "  "),
    "": ("", ""),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_thoughts_are_told_from_what_is_said_wherever_a_stream_is_cut(text: str, expected: tuple[str, str]) -> None:
    assert (split_thoughts(text), split_pieces(text), split_pieces([text])) == (expected,) * 3


def test_nothing_behind_the_end_of_a_turn_takes_back_what_was_said() -> None:
    splitter = ThoughtSplitter()
    told = [splitter.feed(part) for part in ("Aye.<|im_", "end|>No.<think>", "He lies.", "</think>")]
    assert (told, splitter.text, splitter.end()) == ([("", "Aye."), *[("", "")] * 3], "Aye.<|im_end|>", ("", ""))


def test_a_closing_tag_alone_says_too_late_what_was_thought() -> None:
    text = "He lies.</think>\n\nAye."
    assert (split_thoughts(text), split_pieces(text)) == (("He lies.", "Aye."), ("", "He lies.\n\nAye."))


def test_all_tags_are_of_one_table() -> None:
    assert all(THINKING_TAG.fullmatch(tag) and len(tag) + 4 <= LONGEST_TAG for tag in THINKING_TAGS)
    assert all(TURN_END.fullmatch(end) and len(end) <= LONGEST_TAG for end in TURN_ENDS)


LEADING = {
    "<think>a</think> b": "b",
    "<Think>a</Think>b": "b",
    "<thinking>a</thinking>b": "b",
    "a</think>b": "b",
    "<think>a": "",
    "b <think>a</think> c": "b <think>a</think> c",
    "<think>a</think>b</think>c": "b</think>c",
    "<think>a</think>\n[THINK]a[/THINK]b": "b",
    "b [THINK]a[/THINK] c": "b [THINK]a[/THINK] c",
    "a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>": "b",
    "<|START_RESPONSE|>b<|END_RESPONSE|><|END_OF_TURN_TOKEN|>": "b",
    "<|START_THINKING|>a": "",
    "<think>a</think>b<|im_end|>": "b<|im_end|>",
    "<|channel>thought\n<channel|>b<|return|>": "b<|return|>",
    "a</details>b": "a</details>b",
}


@pytest.mark.parametrize(("text", "seen"), LEADING.items())
def test_gates_and_judges_see_everything_but_leading_thoughts(text: str, seen: str) -> None:
    assert strip_leading_thoughts(text) == seen


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reply_is_read_alike_in_every_form(family: ThoughtFamily) -> None:
    ends = family.ends or ("",)
    forms = [
        opening.replace("*", ' done="true"') + "He lies." + closing + "Aye." + end
        for opening in family.opens
        for closing in family.closes
        for end in ends
    ]
    assert {(split_thoughts(one), strip_leading_thoughts(one), shows_thought(f"Aye. {one}")) for one in forms} == {
        (("He lies.", "Aye."), "Aye.", True)
    }


def split_pieces(pieces: Iterable[str]) -> tuple[str, str]:
    splitter = ThoughtSplitter()
    parts = [*map(splitter.feed, pieces), splitter.end()]
    return "".join(thought for thought, _ in parts), "".join(said for _, said in parts)
