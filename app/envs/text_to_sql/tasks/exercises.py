"""Exercises: a schema, a question and the query that answers it, drawn from a seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from app.envs.text_to_sql.tasks import alone, figures, related, sets
from app.envs.text_to_sql.tasks.asking import Asked, Asking, Unfit
from app.envs.text_to_sql.tasks.filling import HIDDEN, SHOWN, Rows, filled, wanted_by
from app.envs.text_to_sql.tasks.schemas import Level, Schema, drawn_schema
from app.toolkit.seeded import Draws

Shape = Callable[[Asking], Asked]

SHAPES: Final[dict[Level, Sequence[Shape]]] = {
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
class Exercise:
    schema: Schema
    asked: Asked
    shape: str
    seed: str

    @cached_property
    def shown(self) -> Rows:
        return filled(self.schema, f"{self.seed} shown", SHOWN, wanted_by(self.asked.query))

    @cached_property
    def hidden(self) -> Rows:
        return filled(self.schema, f"{self.seed} hidden", HIDDEN, wanted_by(self.asked.query))


@lru_cache(maxsize=32)
def exercise(seed: str, level: Level) -> Exercise:
    """Pure. The shape is drawn first, so that shapes that few schemas fit are as frequent as others."""
    draws = Draws(f"{seed} {level}")
    shape = draws.one(SHAPES[level])
    for _ in range(MOST_ATTEMPTS):
        schema = drawn_schema(draws, level)
        try:
            return Exercise(schema, shape(Asking(schema, draws)), shape.__name__, seed)
        except Unfit:
            continue
    raise ValueError(f"no schema of {seed!r} fits {shape.__name__}")
