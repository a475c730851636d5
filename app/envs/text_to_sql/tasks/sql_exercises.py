"""Exercises: a schema, a question and the query that answers it, drawn from a seed."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from app.envs.text_to_sql.tasks import (
    aggregate_questions,
    set_questions,
    single_table_questions,
    three_table_questions,
    two_table_questions,
)
from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, Level, draw_schema
from app.envs.text_to_sql.tasks.question_builder import QuestionBuilder, SqlQuestion, UnsuitableSchema
from app.envs.text_to_sql.tasks.row_generation import HIDDEN, SHOWN, Rows, Wanted, generate_rows, list_wanted_values
from app.toolkit.seeded import SeededRandom

QuestionShape = Callable[[QuestionBuilder], SqlQuestion]

SHAPES: Final[dict[Level, Sequence[QuestionShape]]] = {
    "easy": (
        single_table_questions.listing,
        set_questions.repeated_rows,
        set_questions.repeated_rows,
        set_questions.repeated_rows,
        set_questions.repeated_rows,
        single_table_questions.counting,
        single_table_questions.figure,
        single_table_questions.different,
        single_table_questions.first_ones,
        single_table_questions.in_order,
        single_table_questions.per_value,
        single_table_questions.known_ones,
        single_table_questions.per_year,
        single_table_questions.either,
    ),
    "medium": (
        single_table_questions.above_average,
        single_table_questions.having,
        single_table_questions.the_highest,
        set_questions.how_many_different,
        single_table_questions.not_that,
        two_table_questions.with_parent,
        two_table_questions.parents_of_rows,
        two_table_questions.parents_of_rows,
        two_table_questions.parents_of_rows,
        two_table_questions.parents_of_rows,
        two_table_questions.parents_of_rows,
        two_table_questions.parents_of_rows,
        two_table_questions.children_of_each,
        two_table_questions.at_least,
        two_table_questions.over_children,
        two_table_questions.without,
        two_table_questions.with_some,
        two_table_questions.by_value_of_parent,
        two_table_questions.lookup,
        two_table_questions.how_many_parents,
        two_table_questions.most_children,
        two_table_questions.known_figures,
    ),
    "hard": (
        three_table_questions.partners,
        set_questions.partners_at_least,
        set_questions.partners_of_rows,
        set_questions.partners_of_rows,
        set_questions.partners_of_rows,
        set_questions.partners_of_rows,
        set_questions.partners_of_rows,
        set_questions.partners_of_rows,
        set_questions.both,
        set_questions.one_but_not_other,
        set_questions.in_two_tables,
        aggregate_questions.most_in_total,
        set_questions.only_such,
        aggregate_questions.best_of_each,
        aggregate_questions.above_overall,
        aggregate_questions.such_of_each,
        aggregate_questions.share,
        aggregate_questions.two_counts,
        set_questions.pairs,
        aggregate_questions.spread,
        three_table_questions.grandchildren,
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
    def shown_rows(self) -> Rows:
        return generate_rows(self.schema, f"{self.seed} shown", SHOWN, self._wanted)

    @cached_property
    def hidden_rows(self) -> Rows:
        return self.generate_hidden_rows()

    def generate_hidden_rows(self, needed: Collection[str] | None = None) -> Rows:
        """Those of all tables, or at least those of the tables that are `needed`."""
        return generate_rows(self.schema, f"{self.seed} hidden", HIDDEN, self._wanted, needed)

    @cached_property
    def _wanted(self) -> Wanted:
        return list_wanted_values(self.asked.query)


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
