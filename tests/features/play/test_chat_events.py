"""Events of a reply: nothing is held back but the end."""

from typing import Any

from app.features.play.replies import ReplyWriter, read_whole


def chunk(content: str | None = None, reason: str | None = None, index: int = 0) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return {"id": "own", "model": "own", "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def tell(*events: dict[str, Any]) -> tuple[list[Any], list[Any], ReplyWriter]:
    """Deltas with their finish reasons, at once and at the end."""
    writer = ReplyWriter("hob@warm", "id", 0)
    at_once = [taken for event in events if (taken := writer.take(event)) is not None]
    last = writer.finish("noticed")
    return [one["choices"] for one in at_once], last, writer


def test_words_that_come_with_the_end_are_told_at_once() -> None:
    at_once, last, writer = tell(chunk("Aye"), chunk(", sir.", "stop"), {"choices": [], "usage": {"total_tokens": 3}})
    assert at_once == [chunk("Aye")["choices"], chunk(", sir.")["choices"]]
    found = [(one["choices"], one.get("play"), one.get("usage")) for one in last]
    assert found == [(chunk(None, "stop")["choices"], "noticed", None), ([], None, {"total_tokens": 3})]
    assert [(one.text, one.finish_reason) for one in writer.list_spoken(1.0)] == [("Aye, sir.", "stop")]


def test_choices_end_at_their_own_time() -> None:
    at_once, last, writer = tell(chunk("A"), chunk("B", index=1), chunk(None, "stop"), chunk("b", "length", 1))
    assert [choices[0]["delta"] for choices in at_once] == [{"content": "A"}, {"content": "B"}, {"content": "b"}]
    assert [one.get("play") for one in last] == [None, "noticed"]
    assert [(one.text, one.finish_reason) for one in writer.list_spoken(1.0)] == [("A", "stop"), ("Bb", "length")]


def test_thoughts_stand_in_a_field_of_their_own() -> None:
    at_once, _, writer = tell(chunk("<think>He"), chunk(" lies</think>A"), chunk("ye."), chunk(None, "stop"))
    assert [choices[0]["delta"] for choices in at_once] == [
        {"content": "", "reasoning_content": "He"},
        {"content": "A", "reasoning_content": " lies"},
        {"content": "ye."},
    ]
    assert writer.list_spoken(1.0)[0].text == "Aye."


def test_no_reason_is_made_up_for_a_stream_without_one() -> None:
    _, last, _ = tell(chunk("Aye."))
    assert [(one["choices"][0]["finish_reason"], one["play"]) for one in last] == [(None, "noticed")]


def test_what_is_held_back_is_told_when_a_stream_ends_without_a_reason() -> None:
    at_once, last, writer = tell(chunk("Aye. <"))
    assert [choices[0]["delta"] for choices in at_once] == [{"content": "Aye. "}]
    assert [one["choices"][0]["delta"] for one in last] == [{"content": "<"}, {}]
    assert writer.list_spoken(1.0)[0].text == "Aye. <"


def test_an_empty_finish_reason_ends_nothing() -> None:
    at_once, last, _ = tell(chunk("<", ""), chunk("think>He lies.</think>Aye.", ""), chunk(None, "stop"))
    deltas = [choices[0]["delta"] for choices in (*at_once, *(one["choices"] for one in last)) if choices]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Aye."


def test_a_stream_ends_with_the_turn_as_what_is_kept_does() -> None:
    behind = chunk("_end|>\nuser: No.")
    behind["choices"][0]["logprobs"] = {"content": [{"token": "No.", "logprob": -1.0}]}
    at_once, last, writer = tell(chunk("Aye.<|im"), behind, chunk(" He lies.<think>"), chunk(None, "stop"))
    assert at_once == [chunk(text)["choices"] for text in ("Aye.", "", "")]
    assert [one["choices"] for one in last] == [chunk(None, "stop")["choices"]]
    assert writer.list_spoken(1.0)[0].text == "Aye."


def test_what_is_kept_holds_no_thought_that_was_told_as_words() -> None:
    _, _, writer = tell(chunk("He lies.</think>"), chunk("Aye."), chunk(None, "stop"))
    assert writer.list_spoken(1.0)[0].text == "Aye."


def test_a_whole_reply_is_told_without_its_thoughts() -> None:
    choice: Any = {"index": 0, "message": {"content": "[THINK]He lies.[/THINK]Aye."}, "finish_reason": "stop"}
    answer: Any = {"choices": [choice]}
    told: Any = ReplyWriter("hob@warm", "id", 0).complete(answer, read_whole(answer, 1.0), None)["choices"]
    assert told[0]["message"] == {"content": "Aye.", "reasoning_content": "He lies."}
