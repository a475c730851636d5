"""Text to SQL: answer a question about a small database with one query.

    prompt   CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, …);   some rows of each table
             Which authors have both a book of the genre 'crime' and a book of the genre 'poetry'? Give the name.
    reply    <answer>SELECT name FROM authors WHERE id IN (SELECT author_id FROM books WHERE genre = 'crime') …</answer>
    reward   1.0   its result is that of the right query on two databases

Only some rows of the first database are shown, so a query that returns literal values fails on the second. Both are
filled so that typical mistakes (a forgotten filter, the wrong join, `>` for `>=`) change the result. Queries run on
SQLite in a worker and can only read these tables. Not paid: the wrong order where one was asked for, extra columns,
duplicate rows.

With data sets configured (Spider, BIRD), their questions are the tasks, about the SQLite files beside them. The second
database is then a copy of the first without a quarter of its rows and without what refers to them, where it is small
enough. `level` has no effect.

Schemas come from twelve domains, with two to five tables. A question says which columns in which order, how many
decimal places, and what happens to ties, NULL and rows without a match. `first` lists or counts the only table, `easy`
asks about one table, `medium` mostly about two.

**When a query is right.** One statement in `<answer>` tags. Columns are compared by place, rows as often as they occur,
in any order unless one is asked for; rows that the asked order does not tell apart may come in any order. Numbers are
equal by value, floats within 1e-9. A number as text is right only where the right result has a number, so
`CAST(zip AS INTEGER)` is wrong for `02134`. Texts are equal letter for letter, NULL only to NULL. No task is given out
for which one of ten to forty typical wrong queries has the right results. A `DISTINCT` that nobody asked for is wrong
in a fifth of the tasks.

**What a query may do.** Select from the tables of its schema, on a read-only database in memory, with listed functions:
aggregates and windows, texts, numbers, dates, JSON values. Other statements, `PRAGMA`, `ATTACH`, `random()` and `now`
are refused. It has 3,000,000 steps of SQLite's virtual machine, 1 second for each database, 96 MB, 20,000 bytes for a
text or row, 100 columns and 100 levels. A query that exceeds a limit earns 0; a broken worker leaves the answer
unscored. If a query cannot run, the rationale quotes SQLite; of results it says only that they differ.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, Field, JsonValue

from app.domain.errors import ScoringFailed, WorkExceeded
from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Limits, Message, Task
from app.domain.values import Frozen, Split
from app.envs.text_to_sql import databases as database_domains
from app.envs.text_to_sql import questions
from app.envs.text_to_sql.databases import write_samples
from app.envs.text_to_sql.exercises import MOST_ATTEMPTS, SqlExercise, draw_exercise, find_query_fault, is_sound
from app.envs.text_to_sql.queries import render_sql
from app.envs.text_to_sql.rows import SqlDatabases, SqlRow, asks_for_order, find_row_fault
from app.ports import Tools
from app.ports.environment import FreeReward
from app.toolkit.answers import grade_committed_in_worker, strip_markup
from app.toolkit.procedural import LEVELS, DatasetEnvironment, DatasetParams, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

_LIMITS: Final = Limits(seconds=30, cpu_seconds=4, memory_mb=96, output_bytes=4096)
_ROW_LIMITS: Final = Limits(seconds=120, cpu_seconds=45, memory_mb=512, output_bytes=4096)
"""For a question of a data set, whose database may be large."""


class SqlParams(LevelParams, DatasetParams):
    """`level` concerns generated questions alone."""


class SqlTaskSpec(Frozen):
    """A task, which can be rebuilt from `seed` and `level`."""

    seed: str
    level: Level
    query: str
    database: Annotated[str, Field(exclude_if=lambda name: not name)] = ""
    """Of a data set: the name of the database that the question is about."""


class TextToSql(DatasetEnvironment[SqlRow], ProceduralEnvironment[SqlTaskSpec, SqlParams]):
    name: ClassVar[str] = "text_to_sql"
    version: ClassVar[str] = "4"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    scores_at_once: ClassVar[bool] = False
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    data: ClassVar[Mapping[str, str]] = {"domains": database_domains.DIGEST, "questions": questions.DIGEST}
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="near_miss_digit",
            share=0.25,
            because="A limit may move where no value lies between; the number in SELECT 1 may be any.",
        ),
        FreeReward(strategy="near_miss_token", share=0.02, because="Few words of a query can be left out."),
        FreeReward(strategy="near_miss_case", share=None, because="SQL does not tell the case of its words and names."),
    )

    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (SqlRow,)

    def __init__(self, datasets: Mapping[str, Dataset[SqlRow]] | None = None) -> None:
        super().__init__(datasets)
        self._databases = {name: SqlDatabases(dataset) for name, dataset in self.datasets.items()}
        for name, databases in self._databases.items():
            databases.log_left_out(self.datasets[name].origin)

    @property
    def digests(self) -> Mapping[str, str]:
        databases = {f"databases.{name}": one.digest for name, one in self._databases.items()}
        return {**super().digests, **databases}

    def count_left_out(self, dataset: str, split: Split) -> Mapping[str, int]:
        return self._databases[dataset].left_out[split]

    def size(self, split: Split, params: BaseModel) -> int | None:
        dataset = self.find_dataset(params)
        if dataset is None:
            return self.count_own_tasks(split, params)
        return self._databases[dataset.name].count_rows(split)

    def build_dataset_task(self, dataset: Dataset[SqlRow], split: Split, index: int, params: BaseModel) -> Task:
        databases = self._databases[dataset.name]
        row = dataset.splits[split][databases.find_index(split, index)]
        described = databases.write_database(row.db_id)
        slots = {"about": row.db_id, "schema": described.schema, "rows": described.rows, "question": row.task_text}
        prompt = self.phrasings.say(SeededRandom(f"{row.db_id} {row.question}"), **slots)
        hidden = SqlTaskSpec(seed="", level="medium", query=row.query, database=row.db_id)
        metadata: dict[str, JsonValue] = {"database": row.db_id}
        return Task(
            messages=(Message(role="user", content=prompt),),
            metadata={**metadata, "level": row.level} if row.level else metadata,
            reference=hidden.model_dump(mode="json"),
        )

    def make(self, draws: SeededRandom, level: Level, params: SqlParams) -> SqlTaskSpec:
        seed = f"{draws.below(2**40):010x}"
        return SqlTaskSpec(seed=seed, level=level, query=render_sql(draw_exercise(seed, level).asked.query))

    def key(self, made: SqlTaskSpec) -> str:
        """The query, so that a question is in one split only, whatever else its schema has."""
        return f"{made.database}: {made.query}" if made.database else made.query

    def draw_content(self, seed: str, split: Split, level: Level, params: SqlParams) -> SqlTaskSpec:
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

    def kind(self, made: SqlTaskSpec) -> object:
        return _rebuild_exercise(made).shape

    def metadata(self, made: SqlTaskSpec) -> dict[str, JsonValue]:
        asked = _rebuild_exercise(made)
        return {"domain": asked.schema.domain, "shape": asked.shape, "tables": len(asked.schema.tables)}

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = self.parse_reference(task)
        run = self._prepare_check(task, made, tools)

        async def find_fault(answer: str) -> str:
            try:
                return str(await run(strip_markup(answer)))
            except WorkExceeded as exceeded:
                if exceeded.limit == "seconds":  # wall-clock time grows on a busy machine: not the query's fault
                    raise
                if made.database:
                    await run(made.query)  # where the right query takes too much as well, no score is given
                return "it needs more time or memory than a query may use"

        return await grade_committed_in_worker([completion.answer for completion in group], find_fault)

    def _prepare_check(self, task: Task, made: SqlTaskSpec, tools: Tools) -> Callable[[str], Awaitable[object]]:
        if not made.database:
            return lambda answer: tools.workers.run(find_query_fault, made.seed, made.level, answer, limits=_LIMITS)
        databases = self._databases.get(str(task.metadata.get("dataset")))
        file = databases.get_file(made.database) if databases is not None else None
        if file is None:
            raise ScoringFailed(f"the database {made.database} is not there any more")
        in_order = asks_for_order(made.query)
        return lambda answer: tools.workers.run(
            find_row_fault, str(file), made.query, in_order, answer, limits=_ROW_LIMITS
        )

    def solution(self, made: SqlTaskSpec) -> str:
        return made.query


def _rebuild_exercise(made: SqlTaskSpec) -> SqlExercise:
    return draw_exercise(made.seed, made.level)
