"""What counts as a word, a sentence, a line, a paragraph."""

import pytest

from app.envs.instruction_following.instructions import MOST_CHARACTERS, normalise_text, parse_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("One two", ("One", "two")),
        ("well-known don't 3.5 U.S. and/or", ("well-known", "don't", "3.5", "U.S.", "and/or")),
        ("house—which – so--it", ("house", "which", "so", "it")),
        ("* - *** … _ 🙂", ()),
        ("**bold**, (so)", ("**bold**,", "(so)")),
        ("a\u00a0b\u3000c\td\u2028e", ("a", "b", "c", "d", "e")),
        ("zero\u200bwidth\u2060and\u00adsoft\ufeff", ("zerowidthandsoft",)),
        ("Ｆｕｌｌ ｗｉｄｔｈ １", ("Full", "width", "1")),
        ("\ud800a\x00b \udfff", ("ab",)),
        ("e\u0301 é", ("e", "é")),
    ],
)
def test_words(text: str, words: tuple[str, ...]) -> None:
    assert parse_text(text).words == words


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Well-known, DON’T!", ("well", "known", "don't")),
        ("the violin's “Violin”", ("the", "violin's", "violin")),
        ("snake_case **x**", ("snake", "case", "x")),
        ("Café café ﬁne", ("cafe", "cafe", "fine")),
        ("'quoted' 'tis", ("quoted", "tis")),
        ("Straße 3.5", ("strasse", "3", "5")),
    ],
)
def test_bare_words_are_what_words_are_found_by(text: str, bare: tuple[str, ...]) -> None:
    assert parse_text(text).bare == bare


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ("One.", "Two!", "Three?")),
        ("One, two", ("One, two",)),
        ("“One.” (Two.) *Three.* Four", ('"One."', "(Two.)", "*Three.*", "Four")),
        ("Wait... what?! Yes…", ("Wait...", "what?!", "Yes...")),
        ("A title\nOne. Two\nthree.", ("A title", "One.", "Two", "three.")),
        ("1. One\n2. Two", ("One", "Two")),
        ("Mr. Lee paid 3.5 pounds at a.b", ("Mr.", "Lee paid 3.5 pounds at a.b")),
        ("*** 12. ?! 🙂", ()),
        ('{"a": "One. Two.", "b": "\\"Three.\\" Four"}', ('{"a": "One.', 'Two.", "b": "\\"Three.\\"', 'Four"}')),
    ],
)
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
