"""IFEval's 25 kinds, each in its published, its loose and our meaning."""

import time

import pytest
from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.instruction_following.ifeval_checks import (
    ARGUMENTS,
    IfevalInstruction,
    count_sentences,
    detect_text_language,
    find_own_fault,
    is_followed,
    is_loosely_followed,
    list_languages,
    list_words,
)
from app.envs.instruction_following.instructions import MOST_CHARACTERS, parse_text
from tests.support.tables import read_table

SPOKEN = read_table(__file__, "languages.yaml", dict[str, str])


class Case(Frozen):
    arguments: dict[str, JsonValue]
    replies: dict[str, str]


CASES = read_table(__file__, "ifeval.yaml", dict[str, tuple[Case, ...]])
UNITS = (
    *("a. ", '."', "*a ", "**", "[", "<<", "P.S", "- \n", "***\n", "a\n\n"),
    *('"', "{", "[", "A'", "…", "\ud800", "SECTION 1"),
)


def followed_by(reply: str, instruction: IfevalInstruction) -> str:
    found = {
        "P": is_followed(reply, instruction),
        "L": is_loosely_followed(reply, instruction),
        "O": bool(reply) and not find_own_fault(parse_text(reply), instruction),
    }
    return "".join(letter for letter, right in found.items() if right)


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_meanings_of_a_kind(kind: str) -> None:
    for case in CASES[kind]:
        instruction = IfevalInstruction.model_validate({"id": kind, "arguments": case.arguments})
        assert {reply: followed_by(reply, instruction) for reply in case.replies} == case.replies


def test_languages_are_told_by_script_and_words() -> None:
    assert {detect_text_language(text): text for text in SPOKEN.values()} == SPOKEN
    odd = [code for code in list_languages() if detect_text_language(" ".join(list_words(code)[:12])) != code]
    assert (odd, detect_text_language("12 !"), detect_text_language("xqz vbk")) == ([], None, "")


@pytest.mark.parametrize(("text", "count"), read_table(__file__, "sentences.yaml", list[tuple[str, int]]))
def test_sentences_as_published_are_counted_without_a_download(text: str, count: int) -> None:
    assert count_sentences(text) == count


@pytest.mark.parametrize("keyword", ["(a+)+$", "(?:x.*)*y", "a.*b|a"])
def test_a_regular_expression_never_hangs(keyword: str) -> None:
    given = {"relation": "at least", "keyword": keyword, "frequency": 1_000}
    instruction = IfevalInstruction.model_validate({"id": "keywords:frequency", "arguments": given})
    began = time.process_time()
    found = [followed_by(text * (MOST_CHARACTERS // len(text)), instruction) for text in ("ab", "x", "\ud800a", "😀a")]
    assert (len(found), time.process_time() - began < 2) == (4, True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_reading_takes_time_linear_in_the_reply(kind: str) -> None:
    instruction = IfevalInstruction.model_validate({"id": kind, "arguments": CASES[kind][0].arguments})
    began = time.process_time()
    for unit in UNITS:
        followed_by(unit * (MOST_CHARACTERS // len(unit)), instruction)
    assert time.process_time() - began < 0.5 * len(UNITS)
