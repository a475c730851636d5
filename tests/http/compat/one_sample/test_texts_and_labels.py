"""What trainers' texts and labels are read as."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import JsonValue

from app.domain.errors import InvalidRequest
from app.domain.tasks import Completion
from app.http.compat.one_sample import MAX_CHARACTERS, SampleLabel, build_completion, extract_response, read_label
from tests.support.tables import read_table

TASK = f"task_{7:032x}"
ROWS = read_table(__file__, "texts.yaml", dict[str, Any])


@pytest.mark.parametrize(("query", "prompt", "response"), ROWS["responses"])
def test_the_prompt_is_cut_off_whatever_became_of_its_white_space(query: str, prompt: str, response: str) -> None:
    assert extract_response(query, prompt, "query[0]") == response


@pytest.mark.parametrize(("query", "prompt"), [("sistant: 4", "assistant:"), ("assist", "assistant:"), ("", "a")])
def test_a_query_that_begins_otherwise_is_no_query(query: str, prompt: str) -> None:
    with pytest.raises(InvalidRequest, match="does not start with its prompt") as refused:
        extract_response(query, prompt, "query[3]")
    assert refused.value.field == "query[3]"


@pytest.mark.parametrize(("response", "ends", "text", "reason"), ROWS["ends"])
def test_tokens_behind_an_answer_say_whether_it_was_finished(
    response: str, ends: Sequence[str], text: str, reason: str | None
) -> None:
    assert build_completion(response, "prompt", ends) == Completion(text=text, finish_reason=reason)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [("<think>\n", "<think>\nso</think>4"), ("<think></think>", "so</think>4"), ("a [THINK]", "[THINK]so</think>4")],
)
def test_a_thought_that_the_prompt_began_belongs_to_the_answer(prompt: str, text: str) -> None:
    assert build_completion("so</think>4", prompt, ()).text == text


def test_reading_takes_linear_time() -> None:
    began = time.process_time()
    build_completion("</s>" * 250_000, "", ())
    build_completion(" " * 1_000_000, "", ())
    extract_response(f" {'word ' * 50_000}4", f"{'word  ' * 50_000}", "query")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(("label", "read"), read_table(__file__, "labels.yaml", list[tuple[JsonValue, SampleLabel]]))
def test_a_label_names_the_task(label: JsonValue, read: SampleLabel) -> None:
    assert read_label(label, "label") == read


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("4", "label.task_id"),
        (4, "label"),
        (None, "label"),
        ([TASK], "label"),
        ("{", "label"),
        ('{"a":' * 3000, "label"),
        (f'{{"task_id": "{TASK}"' + " " * MAX_CHARACTERS + "}", "label"),
        ({"task_id": f"{TASK}\n"}, "label.task_id"),
        ({"task_id": TASK, "size": 0}, "label.size"),
        ({"task_id": TASK, "size": True}, "label.size"),
        ({"task_id": TASK, "group": "\x00"}, "label.group"),
        (f'{{"task_id": "{TASK}", "group": "\\ud800"}}', "label.group"),
        ({"task_id": TASK, "group": "x" * 201}, "label.group"),
    ],
)
def test_what_names_no_task_is_refused_by_its_place(label: JsonValue, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_label(label, "label")
    assert refused.value.field == field
