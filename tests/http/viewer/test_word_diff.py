"""Two texts word by word."""

from app.http.viewer.word_diff import MOST_WORDS, DiffPiece, compare_words


def test_what_only_one_has_is_told_apart() -> None:
    assert compare_words("The ferry sank, stranger.", "The old ferry sank.").pieces == (
        DiffPiece("both", "The"),
        DiffPiece("second", " old"),
        DiffPiece("both", " ferry sank"),
        DiffPiece("first", ", stranger"),
        DiffPiece("both", "."),
    )


def test_each_text_is_there_whole() -> None:
    one, other = "a b\n\nc  d é 🐟", "a c d\té 🐟🐟"
    pieces = compare_words(one, other).pieces
    assert "".join(piece.text for piece in pieces if piece.kind != "second") == one
    assert "".join(piece.text for piece in pieces if piece.kind != "first") == other


def test_what_is_immense_is_cut_and_counted() -> None:
    one, other = "x " * 100_000, "y " * 100_000
    found = compare_words(one, other)
    shown = sum(len(piece.text) * (2 if piece.kind == "both" else 1) for piece in found.pieces)
    assert (found.left_out, shown) == (400_000 - 2 * MOST_WORDS, 2 * MOST_WORDS)


def test_empty_texts_are_alike() -> None:
    assert (compare_words("", "").pieces, compare_words("", "").similarity) == ((), 1.0)


def test_invisible_characters_are_shown() -> None:
    assert compare_words("a\u202eb", "a\u202eb").pieces == (DiffPiece("both", "a⟨U+202E⟩b"),)
