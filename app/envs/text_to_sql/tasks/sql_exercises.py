"""Exercises: a schema, a question and the query that answers it, drawn from a seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from app.envs.text_to_sql.tasks import aggregate_questions as figures
from app.envs.text_to_sql.tasks import set_questions as sets
from app.envs.text_to_sql.tasks import single_table_questions as alone
from app.envs.text_to_sql.tasks import two_table_questions as related
from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, Level, draw_schema
from app.envs.text_to_sql.tasks.question_builder import QuestionBuilder, SqlQuestion, UnsuitableSchema
from app.envs.text_to_sql.tasks.row_generation import HIDDEN, SHOWN, Rows, generate_rows, list_wanted_values
from app.toolkit.seeded import SeededRandom

QuestionShape = Callable[[QuestionBuilder], SqlQuestion]

SHAPES: Final[dict[Level, Sequence[QuestionShape]]] = {
    "easy": (
        alone.listing,
        alone.listing,
        alone.counting,
        alone.figure,
        alone.different,
        alone.first_ones,
        alone.in_order,
        alone.per_value,
        alone.known_ones,
        alone.per_year,
        alone.either,
    ),
    "medium": (
        alone.above_average,
        alone.having,
        alone.the_highest,
        alone.how_many_different,
        alone.not_that,
        related.with_parent,
        related.children_of_each,
        related.at_least,
        related.over_children,
        related.without,
        related.with_some,
        related.by_value_of_parent,
        related.lookup,
        related.how_many_parents,
        related.most_children,
        related.known_figures,
    ),
    "hard": (
        figures.partners,
        sets.partners_at_least,
        sets.both,
        sets.one_but_not_other,
        sets.in_two_tables,
        figures.most_in_total,
        sets.only_such,
        figures.best_of_each,
        figures.above_overall,
        figures.such_of_each,
        figures.share,
        figures.two_counts,
        sets.pairs,
        figures.spread,
        figures.grandchildren,
    ),
}
MOST_ATTEMPTS = 500


@dataclass(frozen=True)
class SqlExercise:
    schema: DatabaseSchema
    asked: SqlQuestion
    shape: str
    seed: str

    @cached_property
    def shown(self) -> Rows:
        return generate_rows(self.schema, f"{self.seed} shown", SHOWN, list_wanted_values(self.asked.query))

    @cached_property
    def hidden(self) -> Rows:
        return generate_rows(self.schema, f"{self.seed} hidden", HIDDEN, list_wanted_values(self.asked.query))


@lru_cache(maxsize=32)
def draw_exercise(seed: str, level: Level) -> SqlExercise:
    """Pure. The shape is drawn first, so that shapes that few schemas fit are as frequent as others."""
    draws = SeededRandom(f"{seed} {level}")
    shape = draws.one(SHAPES[level])
    for _ in range(MOST_ATTEMPTS):
        schema = draw_schema(draws, level)
        try:
            return SqlExercise(schema, shape(QuestionBuilder(schema, draws)), shape.__name__, seed)
        except UnsuitableSchema:
            continue
    raise ValueError(f"no schema of {seed!r} fits {shape.__name__}")
