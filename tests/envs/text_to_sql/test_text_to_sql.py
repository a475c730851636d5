"""Text to SQL: queries are run in workers, on two databases, and what failed there is told apart from what is wrong."""
# ruff: noqa: S608  # queries made of parts are what is tested

from collections.abc import Sequence

import pytest

from app.domain.errors import WorkerFailed, WorkExceeded
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import Split
from app.envs.text_to_sql.databases import write_samples
from app.envs.text_to_sql.environment import SqlTaskSpec, TextToSql
from app.envs.text_to_sql.exercises import draw_exercise
from app.envs.text_to_sql.queries import render_sql
from app.ports.environment import Tools, Workers
from app.sandbox.workers import ProcessWorkers
from app.service.judging import NoPanel
from app.toolkit.procedural import LEVELS, Level, LevelParams
from tests.envs.replies import FailingWorkers, pose, score_texts
from tests.support.event_loop import closed_after
from tests.support.sql_questions import of_shape
from tests.support.tables import read_table, unfold
from tests.support.tiers import is_quick

SQL = TextToSql()
WAYS = read_table(__file__, "ways.yaml", dict[str, dict[str, tuple[str, ...]]])
TOO_MUCH = "it needs more time or memory than a query may use"


def tasks(split: Split, count: int, params: LevelParams) -> list[Task]:
    return [SQL.task(split, index, params) for index in range(count)]


def of(shape: str) -> Task:
    made, level = of_shape(shape)
    return pose(SqlTaskSpec(seed=made.seed, level=level, query=render_sql(made.asked.query)))


def query_for(task: Task) -> str:
    return SQL.parse_reference(task).query


def scored(task: Task, answers: Sequence[str], workers: Workers | None = None) -> list[Score]:
    return score_texts(SQL, task, *(f"<answer>{answer}</answer>" for answer in answers), workers=workers)


@pytest.mark.parametrize(
    ("shape", "way", "expected"),
    [(shape, way, expected) for shape, ends in WAYS.items() for way, expected in unfold(ends)],
)
def test_an_answer_counts_by_its_result(shape: str, way: str, expected: str) -> None:
    task = of(shape)
    (score,) = scored(task, [way.replace("QUERY", query_for(task))])
    assert (score.rationale[: len(expected)], score.reward) == (expected, float(expected == "correct"))


def test_an_answer_that_is_written_down_is_right_on_no_more_than_one_database() -> None:
    counts = [f"SELECT {number}" for number in range(200)]
    assert {score.reward for score in scored(of("counting"), counts)} == {0.0}


def test_a_query_cannot_find_out_which_database_it_is_run_on() -> None:
    task = of("counting")
    tables = "(SELECT COUNT(*) FROM sqlite_master)"
    answers = [f"SELECT CASE WHEN {tables} > {number} THEN 1 ELSE 2 END" for number in range(8)]
    assert {score.reward for score in scored(task, answers)} == {0.0}


NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
DOUBLED = ", ".join(f"d{place}(x) AS (SELECT x || x FROM d{place - 1})" for place in range(1, 40))


HOSTILE = (
    f"{NUMBERS} SELECT group_concat(x || 'xxxxxxxxxxxxxxxx') FROM n",
    f"WITH d0(x) AS (SELECT 'aaaaaaaa'), {DOUBLED} SELECT x FROM d39",
    "SELECT " + "(" * 4_000 + "1" + ")" * 4_000,
    "SELECT '\ud800'",
    f"{NUMBERS} SELECT COUNT(*) FROM n a, n b, n c",
    f"{NUMBERS} SELECT printf('%10000d', x) FROM n ORDER BY 1",
    f"{NUMBERS} SELECT DISTINCT x, x * 2, x * 3 FROM n ORDER BY 3 DESC",
    *("SELECT zeroblob(2000000000)", "SELECT randomblob(1000000000)", "SELECT printf('%.*c', 2000000000, 'x')"),
    "SELECT replace(hex(zeroblob(9000)), '0', hex(zeroblob(9000)))",
    *("SELECT " + "NOT " * 2400 + "1", "SELECT 1" + " UNION ALL SELECT 1" * 500, "SELECT " + ", ".join(["1"] * 3000)),
    *("SELECT 'a' LIKE '" + "%a" * 4000 + "'", "SELECT load_extension('x')", "PRAGMA cache_size = 1000000000"),
    "SELECT -9223372036854775808 / -1, 1e999, abs(-9223372036854775808)",
    *("SELECT sum(9223372036854775807) FROM (SELECT 1 UNION ALL SELECT 2)", "SELECT '\x00", "\U0010ffff" * 9000),
)


@pytest.mark.deep
async def test_workers_outlive_what_queries_do() -> None:
    """Otherwise a policy could do without a score."""
    task, hostile, attempts = of("counting"), HOSTILE[: 4 if is_quick() else None], list[str]()
    group = [Completion(text=f"<answer>{answer}</answer>") for answer in (*hostile, query_for(task))]
    async with closed_after(ProcessWorkers(2, lambda _, outcome, __: attempts.append(outcome))) as workers:
        scores = await SQL.score(task, group, Tools(panel=NoPanel(), workers=workers))
    assert [(score.reward, score.reason) for score in scores] == [(0.0, None)] * len(hostile) + [(1.0, None)]
    assert {*attempts} <= {"done", "memory_mb"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (WorkExceeded("", limit="cpu_seconds"), (0.0, "scored", TOO_MUCH)),
        (WorkExceeded("", limit="memory_mb"), (0.0, "scored", TOO_MUCH)),
        (WorkExceeded("slow", limit="seconds"), (None, "unscored", "slow")),
        (WorkerFailed("broken"), (None, "unscored", "broken")),
    ],
)
def test_a_query_that_takes_too_much_is_wrong_and_a_broken_worker_is_not_its_fault(
    error: Exception, expected: tuple[float | None, str, str]
) -> None:
    (score,) = scored(of("counting"), ["SELECT 1"], FailingWorkers(error))
    assert (score.reward, score.outcome, score.rationale) == expected


@pytest.mark.parametrize("level", LEVELS)
def test_a_prompt_has_the_tables_some_rows_and_the_question_but_not_the_query(level: Level) -> None:
    asked = tasks("train", 30, LevelParams(level=level))
    made = [draw_exercise(SQL.parse_reference(task).seed, level) for task in asked]
    prompts = [task.messages[-1].content or "" for task in asked]
    parts = [(one.schema.write_ddl(), write_samples(one.schema, one.shown_rows), one.asked.question) for one in made]
    assert [all(part in prompt for part in some) for prompt, some in zip(prompts, parts, strict=True)] == [True] * 30
    assert [query_for(task) in prompt for task, prompt in zip(asked, prompts, strict=True)] == [False] * 30
