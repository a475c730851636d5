"""Questions of Spider and BIRD: what is paid, what is refused, and that databases are only read."""

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from app.domain.errors import EnvironmentUnavailable, WorkExceeded
from app.domain.scores import Score
from app.domain.tasks import DEFAULT_LIMITS, Dataset, Limits
from app.domain.values import Frozen, Split
from app.envs.text_to_sql import rows
from app.envs.text_to_sql.environment import SqlParams, TextToSql
from app.envs.text_to_sql.rows import SqlRow, asks_for_order
from app.sandbox.workers import InProcessWorkers
from tests.envs.replies import score_texts
from tests.support.tables import read_table


class Tables(Frozen):
    ordered: dict[str, bool]
    rules: dict[str, dict[str, float]]


TABLES = read_table(__file__, "sql_rows.yaml", Tables)

NAMES = ("Joe", "Tim", "Rose", "John", "Justin", "Ana", "Eva", "Bo", "Cy", "Di", "Al", "Ed")
OLDEST = SqlRow(db_id="singers", question="Names by age?", query="SELECT name FROM singer ORDER BY age DESC")
COUNT = SqlRow(db_id="singers", question="How many are there?", query="SELECT count(*) FROM singer")
FRENCH = SqlRow(db_id="singers", question="Who is French?", query="SELECT name FROM singer WHERE country = 'FR'")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "singers").mkdir()
    with closing(sqlite3.connect(tmp_path / "singers" / "singers.sqlite")) as database:
        database.execute("CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, country TEXT, age INTEGER)")
        rows = [(name, "FR" if place % 2 else "US", 20 + place) for place, name in enumerate(NAMES)]
        database.executemany("INSERT INTO singer (name, country, age) VALUES (?, ?, ?)", rows)
        database.execute("INSERT INTO singer (name) VALUES (CAST(x'ff41' AS TEXT))")
        database.commit()
    return tmp_path


def _open(folder: Path, *rows: SqlRow) -> TextToSql:
    splits: Mapping[Split, tuple[SqlRow, ...]] = {"train": rows}
    return TextToSql({"ours": Dataset(name="ours", origin="acme/sql", digest="d", splits=splits, folder=folder)})


def _score(environment: TextToSql, *queries: str, index: int = 0) -> list[Score]:
    task = environment.task("train", index, SqlParams())
    return score_texts(environment, task, *(f"<answer>{query}</answer>" for query in queries))


def test_the_prompt_shows_tables_and_some_rows_and_the_hint(folder: Path) -> None:
    row = COUNT.model_copy(update={"evidence": "a singer is a row", "difficulty": "moderate"})
    task = _open(folder, row).task("train", 0, SqlParams())
    prompt = str(task.messages[0].content)
    wanted = (
        "CREATE TABLE singer (id INTEGER",
        "id | name | country | age\n1 | Joe | US | 20",
        "To know: a singer is a row",
    )
    assert [text for text in wanted if text not in prompt] == []
    assert ("Eva" in prompt, task.metadata["level"], task.metadata["database"]) == (False, "medium", "singers")


def test_only_what_is_right_on_both_states_is_paid(folder: Path) -> None:
    environment = _open(folder, COUNT, OLDEST, FRENCH)
    counted = _score(environment, "SELECT count(id) FROM singer", "SELECT 13", "SELECT max(id) FROM singer")
    ordered = _score(
        environment, "SELECT name FROM singer ORDER BY age DESC, id", "SELECT name FROM singer ORDER BY age", index=1
    )
    doubled = "SELECT name FROM singer WHERE country = 'FR' UNION ALL SELECT 'Tim'"
    listed = ", ".join(f"('{name}')" for name in NAMES[1::2])
    french = _score(
        environment,
        "SELECT name FROM singer WHERE country = 'FR' ORDER BY name",
        doubled,
        "SELECT name, country FROM singer WHERE country = 'FR'",
        f"WITH known(name) AS (VALUES {listed}) SELECT name FROM known",  # noqa: S608
        index=2,
    )
    rewards = [[score.reward for score in scores] for scores in (counted, ordered, french)]
    assert rewards == [[1.0, 0.0, 0.0], [1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "query",
    ["DELETE FROM singer", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"],
)
def test_a_query_can_only_read_the_tables_and_not_for_ever(
    folder: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.envs.text_to_sql.rows.ROW_STEPS", 1_000_000)
    before = (folder / "singers" / "singers.sqlite").read_bytes()
    (score,) = _score(_open(folder, COUNT), query)
    assert (score.outcome, score.reward) == ("scored", 0.0)
    assert (folder / "singers" / "singers.sqlite").read_bytes() == before


def test_rows_whose_query_fails_or_gives_nothing_are_left_out(folder: Path) -> None:
    nobody = COUNT.model_copy(update={"query": "SELECT name FROM singer WHERE age > 200"})
    broken = COUNT.model_copy(update={"query": "SELECT nothing FROM nowhere"})
    environment = _open(folder, nobody, COUNT, broken)
    assert (environment.size("train", SqlParams()), environment.size("test", SqlParams())) == (1, 0)
    assert environment.task("train", 0, SqlParams()).metadata["database"] == "singers"


def test_a_database_that_is_missing_or_none_is_named(folder: Path) -> None:
    (folder / "notes").mkdir()
    (folder / "notes" / "notes.sqlite").write_text("no database at all, but long enough to be looked at" * 9)
    details = []
    for name in ("stadiums", "notes"):
        with pytest.raises(EnvironmentUnavailable) as refused:
            _open(folder, COUNT.model_copy(update={"db_id": name}))
        details.append(refused.value.detail)
    assert details == [
        "acme/sql: there is no database stadiums: stadiums/stadiums.sqlite is missing",
        "acme/sql: notes.sqlite cannot be read: file is not a database",
    ]


@pytest.mark.parametrize("name", ["../etc", "a/b", "", ".hidden"])
def test_the_name_of_a_database_is_no_path(name: str) -> None:
    with pytest.raises(ValidationError):
        SqlRow(db_id=name, question="?", query="SELECT 1")


def test_a_right_query_that_fails_later_is_no_fault_of_the_reply(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _open(folder, COUNT)
    with closing(sqlite3.connect(folder / "singers" / "singers.sqlite")) as database:
        database.execute("DROP TABLE singer")
    (score,) = _score(environment, "SELECT 1")
    assert (score.outcome, score.reward) == ("unscored", None)


class SlowWorkers(InProcessWorkers):
    """Workers in which these queries take too much processor time."""

    def __init__(self, *queries: str) -> None:
        self._queries = queries

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        if arguments[-1] in self._queries:
            raise WorkExceeded("it took too long", limit="cpu_seconds")
        return await super().run(function, *arguments, limits=limits)


def test_a_reply_that_takes_too_long_is_wrong_unless_the_right_query_does_too(folder: Path) -> None:
    environment = _open(folder, COUNT)
    task = environment.task("train", 0, SqlParams())
    scores = [
        score_texts(environment, task, "<answer>SELECT 1</answer>", workers=SlowWorkers(*slow))[0]
        for slow in (["SELECT 1"], ["SELECT 1", COUNT.query])
    ]
    assert [(score.outcome, score.reward) for score in scores] == [("scored", 0.0), ("unscored", None)]


@pytest.mark.parametrize(("query", "ordered"), [*TABLES.ordered.items()])
def test_only_the_order_of_the_whole_counts(query: str, ordered: bool) -> None:
    assert asks_for_order(query) is ordered


# Rules for what is right, on a library whose books refer to their authors.

WRITERS = ("Ann", "Bea", "Cid", "Dan", "Eve", "Fay", "Gus", "Hal", "Ivo", "Jan", "Kim", "Lea")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "library").mkdir()
    with closing(sqlite3.connect(tmp_path / "library" / "library.sqlite")) as database:
        database.executescript("""
            CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT, phone TEXT, mentor INTEGER REFERENCES author);
            CREATE TABLE book (id INTEGER PRIMARY KEY, author_id INT REFERENCES author (id), year INT, price REAL);
            CREATE TABLE loan (book_id INTEGER REFERENCES book, day TEXT, FOREIGN KEY (book_id) REFERENCES book (id));
        """)
        for place, name in enumerate(WRITERS, 1):
            author = (place, name, f"{place * 7_003:06d}", place // 2 or None)
            database.execute("INSERT INTO author VALUES (?, ?, ?, ?)", author)
        for place in range(1, 61):
            book = (place, 1 + place * 5 % 12, 1990 + place % 4, place / 4)
            database.execute("INSERT INTO book VALUES (?, ?, ?, ?)", book)
        for place in range(1, 121):
            database.execute("INSERT INTO loan VALUES (?, ?)", (1 + place * 7 % 60, f"2024-0{1 + place % 9}-11"))
        database.execute("INSERT INTO loan VALUES (999, '2024-01-01')")  # of no book, as real data have some
        database.commit()
    return tmp_path


RULES = [(one, other, told) for one, others in TABLES.rules.items() for other, told in others.items()]


def test_rules_of_what_is_right(library: Path) -> None:
    paid = []
    for query, answer, _ in RULES:
        row = SqlRow(db_id="library", question="?", query=query)
        (score,) = _score(_open(library, row), answer)
        paid.append((query, answer, score.reward))
    assert paid == RULES


# Tables that refer to themselves, to each other, or to few rows.

CIRCLES = Path(__file__).with_name("circles.sql").read_text(encoding="utf-8")


@pytest.fixture
def company(tmp_path: Path) -> Path:
    (tmp_path / "company").mkdir()
    with closing(sqlite3.connect(tmp_path / "company" / "company.sqlite")) as database:
        database.executescript(CIRCLES)
        for place in range(1, 41):
            database.execute("INSERT INTO worker VALUES (?, ?, ?)", (place, 1 + place % 6, 1 + place % 9))
            database.execute("INSERT INTO category VALUES (?, ?)", (place, 4))
            database.execute("INSERT INTO visit VALUES (?, ?)", (place, 4 + place % 2 * 6))
            database.execute("INSERT INTO membership VALUES (?, ?)", (place, 41 - place))
        for place in range(1, 10):
            database.execute("INSERT INTO team VALUES (?, ?)", (place, place * 4))
        database.commit()
        database.execute("PRAGMA journal_mode = WAL")
    return tmp_path


def test_what_refers_in_a_circle_or_to_few_rows_keeps_its_rows(company: Path) -> None:
    """In the second state too: it would pay for a list of all that is there."""
    listed = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i FROM n"
    rules = [
        ("SELECT id FROM worker", listed.format(40), 0.0),
        ("SELECT id FROM team", listed.format(9), 0.0),
        ("SELECT id FROM category", listed.format(40), 0.0),
        ("SELECT id FROM visit", listed.format(40), 0.0),
        ("SELECT worker_id FROM membership", listed.format(40), 0.0),
        ("SELECT id FROM worker WHERE manager IS NOT NULL", listed.format(40), 0.0),
        (
            "SELECT id FROM worker WHERE manager IS NOT NULL",
            "SELECT a.id FROM worker a JOIN worker b ON a.manager = b.id",
            1.0,
        ),
        ("SELECT id FROM worker", "SELECT worker.id FROM worker JOIN team ON team = team.id", 1.0),
        ("SELECT worker_id FROM membership", "SELECT worker_id FROM membership JOIN worker ON worker_id = id", 1.0),
        ("SELECT worker_id FROM membership", "SELECT worker_id FROM membership JOIN category ON category_id = id", 1.0),
    ]
    paid = []
    for query, answer, _ in rules:
        (score,) = _score(_open(company, SqlRow(db_id="company", question="?", query=query)), answer)
        paid.append((query, answer, score.reward))
    assert paid == rules


def test_the_second_state_is_made_once_for_each_state_of_the_file(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def copy(path: str) -> sqlite3.Connection:
        made.append(path)
        return copy_with_fewer_rows(path)

    copy_with_fewer_rows = rows._copy_with_fewer_rows
    monkeypatch.setattr(rows, "_copy_with_fewer_rows", copy)
    environment = _open(library, SqlRow(db_id="library", question="?", query="SELECT name FROM author"))
    file = library / "library" / "library.sqlite"
    for time in (1, 1, 2):
        os.utime(file, (time, time))
        _score(environment, "SELECT name FROM author", "SELECT phone FROM author", "SELECT name FROM author ORDER BY 1")
    assert made == [str(file)] * 2
