"""Which groups a page is about: the filter that listings and the pages of groups carry in their addresses."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeVar, get_args

from fastapi import Depends, Query

from app.domain.access import KeyBounds
from app.domain.groups import GroupFilter, GroupOrder
from app.domain.runs import Purpose
from app.domain.scores import Outcome, Reason
from app.domain.text_search import parse_text_query

PAGE_SIZE: Final = 50
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
ORDERS: Final[tuple[GroupOrder, ...]] = get_args(GroupOrder)
_LARGEST: Final = 2**53

WordT = TypeVar("WordT", bound=str)
Word = Annotated[str, Query(max_length=100)]
ModelWord = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class FilterWords:
    """As sent. `sort` is a column, with a minus for the largest first."""

    environment: Word = ""
    run: Word = ""
    outcome: Word = ""
    label: Word = ""
    scene: Word = ""
    text: Annotated[str, Query(max_length=200)] = ""
    model: ModelWord = ""
    judge: Word = ""
    flag: Word = ""
    reason: Word = ""
    purpose: Word = ""
    task_id: Word = ""
    min_step: Word = ""
    max_step: Word = ""
    min_mean: Word = ""
    max_mean: Word = ""
    min_std: Word = ""
    max_std: Word = ""
    since: Word = ""
    until: Word = ""
    sort: Word = ""

    def list_given(self) -> Mapping[str, str]:
        """Those that are not empty, as an address has them."""
        named = {each.name: str(getattr(self, each.name)).strip() for each in fields(self)}
        return {name: word for name, word in named.items() if word}


FilterQuery = Annotated[FilterWords, Depends(FilterWords)]


def build_filter(words: FilterWords, before: int | None, bounds: KeyBounds, skip: int = 0) -> GroupFilter:
    """The filter of a form. Empty fields, unknown words and what is no number or date filter nothing: `list_unread`
    names them."""
    order, descending = _parse_sort(words.sort)
    return GroupFilter(
        environment=clean_word(words.environment),
        run=clean_word(words.run),
        environments=bounds.environments,
        runs=bounds.runs,
        outcome=_find_known(OUTCOMES, words.outcome),
        purpose=_find_known(PURPOSES, words.purpose),
        reason=_find_known(REASONS, words.reason),
        task_id=clean_word(words.task_id),
        label=clean_word(words.label),
        scene=clean_word(words.scene),
        text=parse_text_query(words.text),
        model=clean_word(words.model),
        judge=clean_word(words.judge),
        flag=clean_word(words.flag),
        min_step=_parse_step(words.min_step),
        max_step=_parse_step(words.max_step),
        min_mean=_parse_number(words.min_mean),
        max_mean=_parse_number(words.max_mean),
        min_std=_parse_number(words.min_std),
        max_std=_parse_number(words.max_std),
        since=_parse_time(words.since),
        until=_parse_time(words.until, to_end=True),
        before=before,
        order=order,
        descending=descending,
        skip=skip,
        limit=PAGE_SIZE,
    )


def list_unread(words: FilterWords, where: GroupFilter) -> list[str]:
    """Names of the fields that somebody filled in and that filter nothing."""
    return [name for name in words.list_given() if (where.order if name == "sort" else getattr(where, name)) is None]


def _find_known(known: tuple[WordT, ...], word: str) -> WordT | None:
    return next((each for each in known if each == word), None)


def _parse_sort(word: str) -> tuple[GroupOrder | None, bool]:
    return _find_known(ORDERS, word.removeprefix("-")), word.startswith("-")


def _parse_step(word: str) -> int | None:
    try:
        step = int(word)
    except ValueError:
        return None
    return step if abs(step) < _LARGEST else None


def _parse_number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parse_time(word: str, *, to_end: bool = False) -> datetime | None:
    """A moment, in UTC unless it says otherwise, or a day. `to_end` means the end of that day."""
    try:
        moment = datetime.fromisoformat(word.strip())
    except ValueError:
        return None
    if not 1970 < moment.year < 9999:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment + timedelta(days=1) if to_end and len(word.strip()) <= len("2026-01-01") else moment


def clean_word(word: str) -> str | None:
    """Strips a filter word and replaces NUL, which PostgreSQL refuses in queries."""
    return word.strip().replace("\x00", "\N{REPLACEMENT CHARACTER}") or None
