"""JSON as plain lines: nothing is lost but what is empty, and no text can pass for a line."""

import json

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from app.domain.values import Frozen, digest_of_text
from app.judges.prompts import JudgePrompt, encode_text, render_lines
from tests.support.tables import read_table


class Shown(Frozen):
    document: dict[str, JsonValue]
    lines: str


SHOWN = read_table(__file__, "prompt.yaml", Shown)
DOCUMENT = SHOWN.document


def test_fields_and_records_have_a_line_each() -> None:
    assert [*render_lines(DOCUMENT)] == SHOWN.lines.splitlines()


@given(st.text(min_size=1))
def test_no_text_begins_a_line_of_its_own(text: str) -> None:
    lines = [*render_lines({"said": text, "listed": [text], "records": [{"speaker": text, "text": text}]})]
    assert "\n".join(lines).splitlines() == lines
    assert [line.partition(":")[0] for line in lines[:3]] == ["said", "listed", "records"]


@given(st.text())
def test_an_encoded_text_is_one_line_and_comes_back(text: str) -> None:
    encoded = encode_text(text)
    assert (json.loads(encoded), encoded.splitlines()) == (text, [encoded])


@given(st.text(), st.text(), st.text())
def test_a_prompt_in_two_pieces_is_stored_as_one(system: str, shared: str, candidates: str) -> None:
    user = shared + candidates
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    whole = json.dumps(messages, ensure_ascii=False)
    assert JudgePrompt(system, user, shared).encode("judge") == (whole, digest_of_text(f"judge {whole}"))


def test_parts_that_scenes_share_are_rendered_alike_each_time() -> None:
    sheet = DOCUMENT["sheet"]
    assert [[*render_lines({"sheet": sheet, "scene": scene})] for scene in ("dawn", "dusk")] == [
        [*render_lines({"sheet": json.loads(json.dumps(sheet))}), f"scene: {scene}"] for scene in ("dawn", "dusk")
    ]
