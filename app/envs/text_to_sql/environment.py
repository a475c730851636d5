"""Text to SQL: answer a question about a small database with one query.

    prompt   CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, …);   some rows of each table
             Which authors have both a book of the genre 'crime' and a book of the genre 'poetry'? Give the name.
    reply    <answer>SELECT name FROM authors WHERE id IN (SELECT author_id FROM books WHERE genre = 'crime') …</answer>
    reward   1.0   its result is that of the right query on two databases

Only some rows of the first database are shown, so a query that returns literal values fails on the second. Both are
filled so that typical mistakes (a forgotten filter, the wrong join, `>` for `>=`) change the result. Queries run on
SQLite in a worker and can only read these tables. Not paid: the wrong order where one was asked for, extra columns,
duplicate rows.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from pydantic import JsonValue

from app.domain.errors import WorkExceeded
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import Frozen, Split
from app.domain.work import Limits
from app.envs.text_to_sql.tasks import database_domains, question_builder
from app.envs.text_to_sql.tasks.query_execution import find_query_fault
from app.envs.text_to_sql.tasks.query_sql import render_sql
from app.envs.text_to_sql.tasks.soundness import is_sound
from app.envs.text_to_sql.tasks.sql_exercises import MOST_ATTEMPTS, SqlExercise, draw_exercise
from app.envs.text_to_sql.tasks.table_samples import write_samples
from app.ports import Tools
from app.ports.environment import FreeReward
from app.toolkit.answers.committed import grade_committed_in_worker
from app.toolkit.procedural import Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

LIMITS: Final = Limits(seconds=30, cpu_seconds=4, memory_mb=96, output_bytes=4096)


class SqlTaskSpec(Frozen):
    """A task, which can be rebuilt from `seed` and `level`."""

    seed: str
    level: Level
    query: str


class TextToSql(ProceduralEnvironment[SqlTaskSpec, LevelParams]):
    name: ClassVar[str] = "text_to_sql"
    version: ClassVar[str] = "2"
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    data: ClassVar[Mapping[str, str]] = {"domains": database_domains.DIGEST, "questions": question_builder.DIGEST}
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="near_miss_digit",
            share=0.25,
            because="A limit may move where no value lies between; the number in SELECT 1 may be any.",
        ),
        FreeReward(strategy="near_miss_token", share=0.02, because="Few words of a query can be left out."),
        FreeReward(strategy="near_miss_case", share=None, because="SQL does not tell the case of its words and names."),
    )

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> SqlTaskSpec:
        seed = f"{draws.below(2**40):010x}"
        return SqlTaskSpec(seed=seed, level=level, query=render_sql(draw_exercise(seed, level).asked.query))

    def key(self, made: SqlTaskSpec) -> str:
        """The query, so that a question is in one split only, whatever else its schema has."""
        return made.query

    def draw_content(self, seed: str, split: Split, level: Level, params: LevelParams) -> SqlTaskSpec:
        """Checks soundness only for questions of the right split, since that takes databases."""
        for attempt in range(MOST_ATTEMPTS):
            made = super().draw_content(f"{seed} {attempt}", split, level, params)
            if is_sound(_rebuild_exercise(made)):
                return made
        raise ValueError(f"seed {seed!r} gives no sound question")

    def slots(self, made: SqlTaskSpec) -> Mapping[str, str | int]:
        asked = _rebuild_exercise(made)
        return {
            "about": asked.schema.about,
            "schema": asked.schema.write_ddl(),
            "rows": write_samples(asked.schema, asked.shown_rows),
            "question": asked.asked.question,
        }

    def metadata(self, made: SqlTaskSpec) -> dict[str, JsonValue]:
        asked = _rebuild_exercise(made)
        return {"domain": asked.schema.domain, "shape": asked.shape, "tables": len(asked.schema.tables)}

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = self.parse_reference(task)

        async def find_fault(answer: str) -> str:
            try:
                return str(await tools.workers.run(find_query_fault, made.seed, made.level, answer, limits=LIMITS))
            except WorkExceeded as exceeded:
                if exceeded.limit == "seconds":  # wall-clock time grows on a busy machine: not the query's fault
                    raise
                return "it needs more time or memory than a query may use"

        return await grade_committed_in_worker([completion.answer for completion in group], find_fault)

    def solution(self, made: SqlTaskSpec) -> str:
        return made.query


def _rebuild_exercise(made: SqlTaskSpec) -> SqlExercise:
    return draw_exercise(made.seed, made.level)
