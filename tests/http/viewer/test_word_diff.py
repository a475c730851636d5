"""Two texts word by word."""

from app.http.viewer.rendering import (
    MOST_CHARACTERS,
    MOST_LINES,
    MOST_WORDS,
    DiffPiece,
    WordDiff,
    compare_revisions,
    compare_words,
)


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


def test_of_revisions_only_the_lines_that_differ_are_compared() -> None:
    lines = [f"line {number}\n" for number in range(20)]
    now = [*lines[:5], "line five\n", *lines[6:15], *lines[16:]]
    found = compare_revisions("".join(lines), "".join(now))
    assert found.pieces == (
        DiffPiece("both", "line 3\nline 4\n"),
        DiffPiece("both", "line "),
        DiffPiece("first", "5"),
        DiffPiece("second", "five"),
        DiffPiece("both", "\n"),
        DiffPiece("both", "line 6\nline 7\n"),
        DiffPiece("both", "⋯\n"),
        DiffPiece("both", "line 13\nline 14\n"),
        DiffPiece("first", "line 15\n"),
        DiffPiece("both", "line 16\nline 17\n"),
    )
    assert compare_revisions("same\n", "same\n").pieces == ()


def test_immense_revisions_are_cut_and_counted() -> None:
    one, other = "x " * 100_000, "y " * 100_000
    found = compare_revisions(one, other)
    assert [len(piece.text) for piece in found.pieces] == [MOST_CHARACTERS] * 2
    assert found.left_out == 400_000 - 2 * MOST_CHARACTERS
    assert compare_revisions("x\n" * (MOST_LINES + 1), "x") == WordDiff((), 0, 2 * MOST_LINES + 3)
