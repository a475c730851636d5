"""What counts as a word, a sentence, a line, a paragraph."""

import pytest

from app.domain.values import Frozen
from app.envs.instruction_following.instructions import MOST_CHARACTERS, normalise_text, parse_text
from tests.support.tables import read_table


class Tables(Frozen):
    words: tuple[tuple[str, tuple[str, ...]], ...]
    bare: tuple[tuple[str, tuple[str, ...]], ...]
    sentences: tuple[tuple[str, tuple[str, ...]], ...]


TABLES = read_table(__file__, "reading.yaml", Tables)


@pytest.mark.parametrize(("text", "words"), TABLES.words)
def test_words(text: str, words: tuple[str, ...]) -> None:
    assert parse_text(text).words == words


@pytest.mark.parametrize(("text", "bare"), TABLES.bare)
def test_bare_words_are_what_words_are_found_by(text: str, bare: tuple[str, ...]) -> None:
    assert parse_text(text).bare == bare


@pytest.mark.parametrize(("text", "sentences"), TABLES.sentences)
def test_sentences(text: str, sentences: tuple[str, ...]) -> None:
    assert parse_text(text).sentences == sentences


def test_lines_and_paragraphs() -> None:
    reading = parse_text("\n One\r\ntwo\r\n \t\r\n\r\nthree\u2029four\n\n")
    assert (reading.lines, reading.paragraphs) == (("One", "two", "three", "four"), ("One\ntwo", "three\nfour"))


def test_parts_between_lines_of_a_mark() -> None:
    reading = parse_text("a\nb\n ** \n\n**\nc ** d")
    assert reading.split_at("**") == ("a\nb", "", "c ** d")


def test_what_nobody_sees_is_left_out() -> None:
    assert normalise_text(" \u202eA\u200d“b”\u0336 ‘c’\ufe0f\U000e0041\t…\r") == "A\"b\" 'c'\t..."


def test_no_more_is_read_than_can_be_a_reply() -> None:
    assert (len(parse_text("a" * 100_000).text), len(parse_text("\u0301" * 100_000).text)) == (MOST_CHARACTERS + 1, 0)


def test_a_reply_is_kept_as_it_is_for_what_has_a_grammar() -> None:
    assert parse_text(' {"a": "“b”"}\n').raw == '{"a": "“b”"}'
