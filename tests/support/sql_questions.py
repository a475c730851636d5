"""Exercises of text_to_sql for tests, and a small database of their kind to run queries on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from sqlite3 import Connection

from app.envs.text_to_sql.tasks.domains import DOMAINS
from app.envs.text_to_sql.tasks.exercises import Exercise, exercise
from app.envs.text_to_sql.tasks.filling import Rows
from app.envs.text_to_sql.tasks.running import opened
from app.envs.text_to_sql.tasks.schemas import Column, Level, Link, Schema, Table
from app.envs.text_to_sql.tasks.soundness import is_sound

_AUTHOR, _BOOK = DOMAINS["library"].things[:2]
LIBRARY = Schema(
    "library",
    "a library",
    (
        Table(
            "authors", _AUTHOR, "id", Column("name", "name"), (Column("born", "birth year", _AUTHOR.columns[1]),), ()
        ),
        Table(
            "books",
            _BOOK,
            "id",
            Column("title", "title"),
            (Column("pages", "number of pages", _BOOK.columns[1]), Column("shelf", "shelf", _BOOK.columns[4])),
            (Link("author_id", "authors", _BOOK.ties[0]),),
        ),
    ),
)
ROWS: Rows = {
    "authors": [(1, "Ada Abel", 1950), (2, "Bela Baker", 1960)],
    "books": [(1, "Red Door", 1, 100, "A1"), (2, "Old Sea", 1, 300, None), (3, "Lost Map", 2, 100, "B2")],
}


@contextmanager
def library() -> Iterator[Connection]:
    database = opened(LIBRARY, ROWS)
    try:
        yield database
    finally:
        database.close()


def sound_exercises(count: int, level: Level, seed: str = "") -> list[Exercise]:
    found: list[Exercise] = []
    number = 0
    while len(found) < count:
        number += 1
        made = exercise(f"{seed}{number}", level)
        if is_sound(made):
            found.append(made)
    return found


def of_shape(shape: str, levels: Sequence[Level] = ("easy", "medium", "hard")) -> tuple[Exercise, Level]:
    """The first sound one."""
    for number in range(5_000):
        for level in levels:
            made = exercise(f"shape {number}", level)
            if made.shape == shape and is_sound(made):
                return made, level
    raise LookupError(shape)
