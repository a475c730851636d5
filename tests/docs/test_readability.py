"""How docs.readability finds the sentences of a page."""

import pytest

from app.domain.values import Frozen
from docs.readability import Page, count_words, main, measure, sentences
from tests.support.tables import read_table


class Tables(Frozen):
    markdown: str
    sentences: list[str]


TABLES = read_table(__file__, "readability.yaml", Tables)

MARKDOWN = TABLES.markdown


def test_markdown_is_split_into_the_sentences_of_its_prose() -> None:
    assert sentences(MARKDOWN) == TABLES.sentences


@pytest.mark.parametrize(
    ("sentence", "words"), [("It reads ¤ once a second.", 6), ("Keys, e.g. 1,000 of ada's, at 1.5 USD/day.", 8)]
)
def test_words_are_counted_without_their_punctuation(sentence: str, words: int) -> None:
    assert count_words(sentence) == words


def test_a_page_is_measured_by_its_mean_and_its_long_sentences() -> None:
    pages = [measure("page", f"One two. {'Word ' * 25}end."), measure("empty", "# A heading\n")]
    assert pages == [Page("page", 2, 14, 0.5), None]


def test_the_median_page_is_printed_for_each_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--medians"]) == 0
    assert "the median page" in capsys.readouterr().out
