"""Domains of databases: their entities in words, read from `domains/`, and pools of names for rows."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, TypeAdapter, model_validator

from app.domain.digests import digest_of_text
from app.domain.values import Frozen
from app.toolkit.package_data import read_packaged_data

_FOLDER = Path(__file__).parent / "domains"
_WORDS = Path(__file__).parent / "words.yaml"

Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
"""A name in a schema."""


class EntityLabel(Frozen):
    """Names of things: one word from each pool, unique within a table."""

    names: Annotated[tuple[Word, ...], Field(min_length=1)]
    noun: str
    pools: Annotated[tuple[str, ...], Field(min_length=1)]


class ColumnTemplate(Frozen):
    """A column: its possible names, its noun, and its values, given by exactly one of `range`, `date`, `choice` and
    `flag`."""

    names: Annotated[tuple[Word, ...], Field(min_length=1)]
    noun: str
    range: Annotated[tuple[float, ...], Field(min_length=2, max_length=3)] | None = None
    """Lowest, highest, and optionally the step (default 1). Steps are multiples of a quarter, so that float sums are
    exact."""
    sums: bool = False
    """Whether a total of the column is meaningful."""
    date: tuple[int, int] | None = None
    """First and last year."""
    choice: tuple[str, ...] | str | None = None
    """Its values, or the name of a pool."""
    said: str | None = None
    """Words for things with the value `{}`, such as `from {}`; default: `whose city is {}`."""
    flag: tuple[str, str] | None = None
    """Words after the noun for things with 1 and with 0."""
    unknown: Annotated[int, Field(ge=0, le=40)] = 0
    """Percent of rows in which the value is NULL."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.range, self.date, self.choice, self.flag)) != 1:
            raise ValueError("a column needs exactly one of range, date, choice and flag")
        return self


class EntityRelation(Frozen):
    """Each row belongs to a row of another table; `by` connects their words: orders `by` customers."""

    to: str
    by: str
    unknown: Annotated[int, Field(ge=0, le=40)] = 0


class Entity(Frozen):
    one: str
    many: str
    person: bool = False
    label: EntityLabel | None = None
    """If missing, rows are identified by their number."""
    ties: tuple[EntityRelation, ...] = ()
    columns: Annotated[tuple[ColumnTemplate, ...], Field(min_length=2)]


class DatabaseDomain(Frozen):
    about: str
    things: Annotated[tuple[Entity, ...], Field(min_length=2)]
    """Each thing comes after the things that it is tied to."""

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        known: set[str] = set()
        for thing in self.things:
            if unknown := {tie.to for tie in thing.ties} - known:
                raise ValueError(f"{thing.one} is tied to things that are not defined before it: {unknown}")
            known.add(thing.one)
        return self


@cache
def read_domains() -> Mapping[str, DatabaseDomain]:
    """By name."""
    return {path.stem: read_packaged_data(path, TypeAdapter(DatabaseDomain)) for path in sorted(_FOLDER.glob("*.yaml"))}


POOLS: Final[dict[str, tuple[str, ...]]] = read_packaged_data(_WORDS, TypeAdapter(dict[str, tuple[str, ...]]))
DIGEST: Final = digest_of_text("\n".join(path.read_text("utf-8") for path in (_WORDS, *sorted(_FOLDER.glob("*.yaml")))))
