"""What databases are about: things with their words, as they stand in `domains/`, and the names that rows are given."""

from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, TypeAdapter, model_validator

from app.domain.digests import digest_of_text
from app.domain.values import Frozen
from app.toolkit.package_data import packaged_data

_FOLDER = Path(__file__).parent / "domains"
_WORDS = Path(__file__).parent / "words.yaml"

Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
"""A name in a schema."""


class Label(Frozen):
    """What a thing is called: made of one word from each pool, and no two things of a table share it."""

    names: Annotated[tuple[Word, ...], Field(min_length=1)]
    noun: str
    pools: Annotated[tuple[str, ...], Field(min_length=1)]


class Trait(Frozen):
    """A column: its possible names, what people call it, and what stands in it. Exactly one of `range`, `date`,
    `choice` and `flag`."""

    names: Annotated[tuple[Word, ...], Field(min_length=1)]
    noun: str
    range: Annotated[tuple[float, ...], Field(min_length=2, max_length=3)] | None = None
    """Lowest, highest, and the step between, 1 unless it is given. Steps are quarters at the finest, so that no sum
    depends on the order of its parts."""
    sums: bool = False
    """Whether a total of it means anything."""
    date: tuple[int, int] | None = None
    """First and last year."""
    choice: tuple[str, ...] | str | None = None
    """Its values, or the name of a pool."""
    said: str | None = None
    """How a thing with the value `{}` is told from others: `from {}`. Otherwise `whose city is {}`."""
    flag: tuple[str, str] | None = None
    """How things are called for which it is 1, and those for which it is 0; put after the noun."""
    unknown: Annotated[int, Field(ge=0, le=40)] = 0
    """In how many of a hundred rows it is not known."""

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.range, self.date, self.choice, self.flag)) != 1:
            raise ValueError("a column has exactly one of range, date, choice and flag")
        return self


class Tie(Frozen):
    """Each row belongs to one of another table; `by` stands between the two: orders `by` customers."""

    to: str
    by: str
    unknown: Annotated[int, Field(ge=0, le=40)] = 0


class Thing(Frozen):
    one: str
    many: str
    person: bool = False
    label: Label | None = None
    """Without one it is known by its number."""
    ties: tuple[Tie, ...] = ()
    columns: Annotated[tuple[Trait, ...], Field(min_length=2)]


class Domain(Frozen):
    about: str
    things: Annotated[tuple[Thing, ...], Field(min_length=2)]
    """Each stands after those that it is tied to."""

    @model_validator(mode="after")
    def _is_tied_to_what_was_named(self) -> Self:
        known: set[str] = set()
        for thing in self.things:
            if unknown := {tie.to for tie in thing.ties} - known:
                raise ValueError(f"{thing.one} is tied to what does not stand before it: {unknown}")
            known.add(thing.one)
        return self


DOMAINS: Final[dict[str, Domain]] = {
    path.stem: packaged_data(path, TypeAdapter(Domain)) for path in sorted(_FOLDER.glob("*.yaml"))
}
POOLS: Final[dict[str, tuple[str, ...]]] = packaged_data(_WORDS, TypeAdapter(dict[str, tuple[str, ...]]))
DIGEST: Final = digest_of_text("\n".join(path.read_text("utf-8") for path in (_WORDS, *sorted(_FOLDER.glob("*.yaml")))))
