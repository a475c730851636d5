"""Where groups stand: each index of groups begins with columns that a filter names, and goes on by sequence.

SQLite finds the index by these columns. PostgreSQL guesses how many groups have them, and where it takes them for
frequent it walks along all groups instead, past millions of others. So it is told a stretch of the index, in an order
that no other index has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, func, literal_column, tuple_

from app.store.tables import groups

LARGEST: Final = 2**63 - 1
_IN_ORDER: Final = "SELECT set_config('enable_bitmapscan', 'off', true)"
# These repeat the partial indexes' own terms, without which SQLite does not see that they apply.
_IS_OPEN: Final = groups.c.outcome != literal_column("'scored'")
_IS_EVAL: Final = groups.c.purpose == literal_column("'eval'")


@dataclass(frozen=True)
class Stretch:
    """Groups with these values in the first columns of an index, after one sequence and before another. `terms` are
    those of the index if it has only some groups; what is `beside` is compared group by group."""

    equal: tuple[tuple[ColumnElement[Any], str], ...] = ()
    terms: tuple[ColumnElement[bool], ...] = ()
    beside: tuple[ColumnElement[bool], ...] = ()
    after: int | None = None
    before: int | None = None
    postgres: bool = field(kw_only=True)

    def narrow(self, *, after: int | None = None, before: int | None = None) -> "Stretch":
        after = self.after if after is None else max(after, self.after or 0)
        before = self.before if before is None else min(before, LARGEST if self.before is None else self.before)
        return replace(self, after=after, before=before)

    @property
    def bounds(self) -> tuple[int, int]:
        """The sequences right outside."""
        return self.after or 0, LARGEST if self.before is None else self.before

    def match_each(self) -> Iterator[ColumnElement[bool]]:
        """What is compared for groups that were found in another way."""
        yield from (*self.terms, *self.beside)
        yield from (_hide(column) == value for column, value in self.equal)
        yield from self._match_sequences()

    def match(self) -> Iterator[ColumnElement[bool]]:
        yield from (*self.terms, *self.beside)
        if self.equal and self.postgres:
            columns, values = tuple_(*self._columns), [value for _, value in self.equal]
            yield columns > tuple_(*values, 0 if self.after is None else self.after)
            yield columns < tuple_(*values, LARGEST if self.before is None else self.before)
            return
        yield from (column == value for column, value in self.equal)
        yield from self._match_sequences()

    def _match_sequences(self) -> Iterator[ColumnElement[bool]]:
        if self.after is not None:
            yield groups.c.sequence > self.after
        if self.before is not None:
            yield groups.c.sequence < self.before

    def order(self, *, rising: bool) -> list[ColumnElement[Any]]:
        columns = self._columns if self.postgres else (groups.c.sequence,)
        return [column.asc() if rising else column.desc() for column in columns]

    @property
    def _columns(self) -> tuple[ColumnElement[Any], ...]:
        return (*(column for column, _ in self.equal), groups.c.sequence)


def _hide(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """From indexes, of which another is the right one."""
    return func.coalesce(column, literal_column("''"))


def open_stretch(
    connection: Connection,
    *,
    environment: str | None = None,
    run: str | None = None,
    outcome: str | None = None,
    purpose: str | None = None,
    task_id: str | None = None,
) -> Stretch:
    """The narrowest index for what is named. An outcome is `pending` or `unscored`, a purpose is `eval`: of others
    there are too many for an index. For the rest of the transaction, PostgreSQL reads indexes in their order: it sorts
    what it takes for few groups, but it does not know of a run that has just begun."""
    postgres = connection.dialect.name == "postgresql"
    if postgres:
        connection.exec_driver_sql(_IN_ORDER)
    named = {name: value for name, value in (("run", run), ("environment", environment)) if value is not None}
    terms: tuple[ColumnElement[bool], ...] = ()
    if task_id is not None:
        equal = {"task_id": task_id}
    elif outcome is not None:
        equal, terms = dict([*named.items()][:1]) | {"outcome": outcome}, (_IS_OPEN,)
    elif purpose is not None:
        equal, terms, purpose = dict([*named.items()][:1]), (_IS_EVAL,), None
    else:
        equal = named
    wanted = {**named, "outcome": outcome, "purpose": purpose}
    beside = (
        _hide(groups.c[name]) == value for name, value in wanted.items() if value is not None and name not in equal
    )
    return Stretch(
        tuple((groups.c[name], value) for name, value in equal.items()),
        terms,
        tuple(beside),
        postgres=postgres,
    )
