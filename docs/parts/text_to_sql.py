"""Kinds of questions, each with one and the query that answers it, and what cheap tricks earn: from the code itself."""
# ruff: noqa: S608  # queries made of parts are what is shown

import asyncio
from functools import cache

from app.domain.tasks import Completion, Task
from app.envs.text_to_sql.environment import SqlTaskSpec, TextToSql
from app.envs.text_to_sql.exercises import SHAPES, SqlExercise, compute_right_results, draw_exercise, is_sound
from app.envs.text_to_sql.queries import render_sql
from app.ports.environment import Tools
from app.sandbox.workers import InProcessWorkers
from app.service.judging import NoPanel
from app.toolkit.procedural import LEVELS, Level
from docs.markdown import code, table


def sql_questions() -> str:
    """By level, with a question of the first shape."""
    rows = []
    for level in LEVELS:
        shapes = list(dict.fromkeys(one.__name__ for one in SHAPES[level]))
        rows.append((level, ", ".join(map(code, shapes)), _example(shapes[0], level).asked.question))
    return table(("level", "shapes", "for example"), rows)


def sql_tricks() -> str:
    made = _example("counting", "easy")
    right, table_name = render_sql(made.asked.query), made.schema.tables[0].name
    shown = compute_right_results(made.seed, "easy")[0][0][0]
    tricks = (
        ("the right query", right),
        ("in a fence, with a semicolon", f"```sql\n{right};\n```"),
        ("as a query of a query, with another name for the column", f"WITH a(b) AS ({right}) SELECT b AS c FROM a"),
        ("its result as a float", f"SELECT ({right}) * 1.0"),
        ("its result on the first database, written down", f"SELECT {shown}"),
        ("one column more", f"SELECT ({right}), 1"),
        ("its row twice", f"{right} UNION ALL {right}"),
        ("every number there is", "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"),
        ("by whether a table is large", f"SELECT CASE WHEN (SELECT COUNT(*) FROM {table_name}) > 30 THEN 1 ELSE 2 END"),
        ("by the clock", f"SELECT ({right}) + 0 * julianday('now')"),
        ("two statements", f"{right}; {right}"),
        ("a statement that changes something", f"DELETE FROM {table_name}"),
        ("the question", made.asked.question),
    )
    return table(("answer", "earns"), [(what, _earns(made, answer)) for what, answer in tricks])


def _earns(made: SqlExercise, answer: str) -> str:
    question = SqlTaskSpec(seed=made.seed, level="easy", query=render_sql(made.asked.query))
    task = Task(messages=(), reference=question.model_dump(mode="json"))
    group = [Completion(text=f"<answer>{answer}</answer>")]
    tools = Tools(panel=NoPanel(), workers=InProcessWorkers())
    (score,) = asyncio.run(TextToSql().score(task, group, tools))
    return f"{-1.0 if score.reward is None else score.reward:g}"


@cache
def _example(shape: str, level: Level) -> SqlExercise:
    seeds = (f"docs {number}" for number in range(100_000))
    made = (draw_exercise(seed, level) for seed in seeds)
    return next(one for one in made if one.shape == shape and is_sound(one))
