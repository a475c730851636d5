"""Exercises of text_to_sql for tests, and a small database of their kind to run queries on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from sqlite3 import Connection

from app.envs.text_to_sql.databases import (
    DatabaseSchema,
    Level,
    Rows,
    SchemaColumn,
    SchemaLink,
    SchemaTable,
    read_domains,
)
from app.envs.text_to_sql.exercises import SqlExercise, draw_exercise, is_sound, open_database

_AUTHOR, _BOOK = read_domains()["library"].things[:2]
LIBRARY = DatabaseSchema(
    "library",
    "a library",
    (
        SchemaTable(
            "authors",
            _AUTHOR,
            "id",
            SchemaColumn("name", "name"),
            (SchemaColumn("born", "birth year", _AUTHOR.columns[1]),),
            (),
        ),
        SchemaTable(
            "books",
            _BOOK,
            "id",
            SchemaColumn("title", "title"),
            (
                SchemaColumn("pages", "number of pages", _BOOK.columns[1]),
                SchemaColumn("shelf", "shelf", _BOOK.columns[4]),
            ),
            (SchemaLink("author_id", "authors", _BOOK.ties[0]),),
        ),
    ),
)
ROWS: Rows = {
    "authors": [(1, "Ada Abel", 1950), (2, "Bela Baker", 1960)],
    "books": [(1, "Red Door", 1, 100, "A1"), (2, "Old Sea", 1, 300, None), (3, "Lost Map", 2, 100, "B2")],
}


@contextmanager
def library() -> Iterator[Connection]:
    database = open_database(LIBRARY, ROWS)
    try:
        yield database
    finally:
        database.close()


def sound_exercises(count: int, level: Level, seed: str = "") -> list[SqlExercise]:
    found: list[SqlExercise] = []
    number = 0
    while len(found) < count:
        number += 1
        made = draw_exercise(f"{seed}{number}", level)
        if is_sound(made):
            found.append(made)
    return found


def of_shape(shape: str, levels: Sequence[Level] = ("easy", "medium", "hard", "first")) -> tuple[SqlExercise, Level]:
    """The first sound one."""
    for number in range(5_000):
        for level in levels:
            made = draw_exercise(f"shape {number}", level)
            if made.shape == shape and is_sound(made):
                return made, level
    raise LookupError(shape)
