"""What people type becomes words and phrases; long texts share what room there is."""

import pytest

from app.domain.groups import MOST_PHRASES, TextQuery, parse_text_query, share_words
from tests.support.tables import read_table

TABLE = read_table(__file__, "text_search.yaml", dict[str, list[tuple[str, ...]]])


@pytest.mark.parametrize(("typed", "phrases"), [*TABLE.items()])
def test_words_and_phrases(typed: str, phrases: list[tuple[str, ...]]) -> None:
    assert parse_text_query(typed) == TextQuery(phrases=tuple(phrases))


@pytest.mark.parametrize("typed", ["", " ", '""', "* ( ) : ^ - \x00", "\ue000", "\ud83d"])
def test_what_has_no_word_asks_for_nothing(typed: str) -> None:
    assert parse_text_query(typed) is None


def test_a_query_has_so_many_phrases_at_most() -> None:
    query = parse_text_query(" ".join(f"w{n}" for n in range(500)))
    assert len(query.phrases if query else ()) == MOST_PHRASES


@pytest.mark.parametrize(
    ("lengths", "most", "kept"),
    [((3, 5), 8, [3, 5]), ((3, 5), 7, [3, 4]), ((9, 1, 9), 7, [3, 1, 3]), ((4,), 0, [0]), ((), 5, [])],
)
def test_the_longest_texts_lose_their_ends(lengths: tuple[int, ...], most: int, kept: list[int]) -> None:
    texts = [" ".join(f"w{n}" for n in range(length)) for length in lengths]
    assert [len(terms) for terms in share_words(texts, most)] == kept
