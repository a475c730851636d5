"""Which groups a page is about: the filter that listings and the pages of groups carry in their addresses."""

from dataclasses import dataclass
from typing import Annotated, Final, get_args

from fastapi import Depends, Query

from app.domain.access import KeyBounds
from app.domain.groups import GroupFilter
from app.domain.scores import Outcome

PAGE_SIZE: Final = 50
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

Word = Annotated[str, Query(max_length=100)]


@dataclass(frozen=True)
class FilterWords:
    """As sent."""

    environment: str = ""
    run: str = ""
    outcome: str = ""


def read_words(environment: Word = "", run: Word = "", outcome: Word = "") -> FilterWords:
    return FilterWords(environment, run, outcome)


FilterQuery = Annotated[FilterWords, Depends(read_words)]


def build_filter(words: FilterWords, before: int | None, bounds: KeyBounds) -> GroupFilter:
    """The filter of a form. Empty fields and unknown outcomes filter nothing."""
    return GroupFilter(
        environment=_clean_word(words.environment),
        run=_clean_word(words.run),
        environments=bounds.environments,
        runs=bounds.runs,
        outcome=next((known for known in OUTCOMES if known == words.outcome), None),
        before=before,
        limit=PAGE_SIZE,
    )


def _clean_word(word: str) -> str | None:
    """Strips a filter word and replaces NUL, which PostgreSQL refuses in queries."""
    return word.strip().replace("\x00", "\N{REPLACEMENT CHARACTER}") or None
