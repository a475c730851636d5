"""The finder of groups: by one filter, for pages, exports and comparisons.

Each index of groups begins with columns that a filter may name and goes on by sequence. So the newest groups with these
values are a stretch of one index, and a page of them is read without looking at others. What has no index (ranges of
rewards, reasons, flags, labels of many tasks) is compared for the groups of a stretch, one after another, until a bound
of groups or of time is reached; the page then says where the next search goes on. Words of texts have an index of their
own (`text_index`). `WAYS` lists the ways to find groups; the first that applies is taken.

A page is one search, the newest first. A walk is one search after another, the oldest first, until nothing is left.

SQLite finds the index by these columns. PostgreSQL guesses how many groups have the values, and where it takes them for
frequent it walks along all groups instead, past millions of others. So it is told a stretch of the index as a
comparison of rows, in an order that no other index has.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from pydantic_core import to_json
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    func,
    literal_column,
    null,
    or_,
    select,
    true,
    tuple_,
)

from app.domain.groups import GroupFilter
from app.store.database import Database
from app.store.statements import encode_json, is_storable, match_names, to_micros
from app.store.tables import groups, judgements, rollouts, tasks
from app.store.text_index import TAGGED, TextSearch, build_query, count_unindexed, find_texts, list_unindexed

Columns = Sequence[Column[Any]]
"""Of groups that are found, the sequence among them."""
ALL_COLUMNS: Final[Columns] = tuple(groups.c)


@dataclass(frozen=True)
class Reach:
    """How far one search goes."""

    groups: int
    """That it looks at along a stretch; of a walk, sequences that it may pass."""
    seconds: float
    """After which it looks at no more: groups on the disk take twenty times as long as those in memory."""
    most_at_once: int
    """However quick it was so far: what comes next may have to come from the disk, and a piece is read to its end."""
    at_once: int = 100
    """In its first piece, and at least."""
    candidates: int = 2_000
    """That it takes from another index, such as that of texts."""
    is_walk: bool = False
    """Whether all groups are wanted. Pages leave out those that came hours after others of their time, and of a reason
    those that are pending still."""


PAGES: Final = Reach(groups=2_000, seconds=0.1, most_at_once=250)
WALKS: Final = replace(PAGES, groups=20_000, is_walk=True)


def search_groups(
    connection: Connection, where: GroupFilter, columns: Columns = ALL_COLUMNS, reach: Reach | None = None
) -> "GroupSearch":
    read_in_order(connection)
    search = GroupSearch(connection, where, columns, reach or PAGES)
    found, way = next((found, way) for way in WAYS if (found := way.find(search)) is not None)
    return replace(found, way=way)


def read_in_order(connection: Connection) -> None:
    """For the rest of the transaction, PostgreSQL reads indexes in their order: it sorts what it takes for few groups,
    but it does not know of a run that has just begun."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT set_config('enable_bitmapscan', 'off', true)")


_FIRST_STEP: Final = 64
"""Groups that the first search of a walk is for: somebody waits for them."""
_LAST_STEP: Final = 2_048


async def walk_groups(
    database: Database, where: GroupFilter, after: int, last: int
) -> AsyncGenerator[Sequence[int], None]:
    """The sequences of all groups of the filter after one and up to another, oldest first, some at a time. Each search
    is a read of its own: a walk past millions of groups would keep a reader, and an old state of the database."""
    left = await database.read(lambda connection: _begin_walk(connection, where, after, last))
    step = _FIRST_STEP
    while left is not None:
        wanted = left.model_copy(update={"limit": step})
        found = await database.read(partial(search_groups, where=wanted, columns=(groups.c.sequence,), reach=WALKS))
        if found.matches:
            yield found.matches
        left = None if found.edge is None else left.model_copy(update={"after": found.edge})
        step = min(2 * step, _LAST_STEP)


def _begin_walk(connection: Connection, where: GroupFilter, after: int, last: int) -> GroupFilter | None:
    """None where there is no group of the filter's times. Times grow with the sequence, but not always, so all of them
    are looked at, in their index."""
    begun = where.model_copy(update={"after": after, "before": last + 1, "counts": False})
    if where.since is None and where.until is None:
        return begun
    sequence = groups.c.sequence + literal_column("0")  # or the databases walk along the groups themselves
    of_times = (*_match_times(where, groups.c.created_at), sequence > after, sequence <= last)
    first, newest = connection.execute(select(func.min(sequence), func.max(sequence)).where(*of_times)).one()
    return None if first is None else begun.model_copy(update={"after": first - 1, "before": newest + 1})


def load_rows(connection: Connection, sequences: Sequence[int], columns: Columns = ALL_COLUMNS) -> list[RowMapping]:
    if not sequences:
        return []
    rows = connection.execute(select(*columns).where(groups.c.sequence.in_(sequences))).mappings()
    by_sequence = {row["sequence"]: row for row in rows}
    return [by_sequence[sequence] for sequence in sequences if sequence in by_sequence]


# Stretches: each index of groups begins with columns that a filter names, and goes on by sequence.

_LARGEST: Final = 2**63 - 1
# These repeat the partial indexes' own terms, without which SQLite does not see that they apply.
_IS_OPEN: Final = groups.c.outcome != literal_column("'scored'")
_IS_EVAL: Final = groups.c.purpose == literal_column("'eval'")


@dataclass(frozen=True)
class _Stretch:
    """Groups with these values in the first columns of an index, after one sequence and before another. `terms` are
    those of the index if it has only some groups; what is `beside` is compared group by group."""

    equal: tuple[tuple[ColumnElement[Any], str], ...] = ()
    terms: tuple[ColumnElement[bool], ...] = ()
    beside: tuple[ColumnElement[bool], ...] = ()
    after: int | None = None
    before: int | None = None
    postgres: bool = field(kw_only=True)

    def narrow(self, *, after: int | None = None, before: int | None = None) -> "_Stretch":
        after = self.after if after is None else max(after, self.after or 0)
        before = self.before if before is None else min(before, _LARGEST if self.before is None else self.before)
        return replace(self, after=after, before=before)

    @property
    def bounds(self) -> tuple[int, int]:
        """The sequences right outside."""
        return self.after or 0, _LARGEST if self.before is None else self.before

    def match_each(self) -> Iterator[ColumnElement[bool]]:
        """What is compared for groups that were found in another way."""
        yield from (*self.terms, *self.beside)
        yield from (_hide(column) == value for column, value in self.equal)
        yield from self.match_sequences()

    def match(self) -> Iterator[ColumnElement[bool]]:
        yield from (*self.terms, *self.beside)
        if self.equal and self.postgres:
            columns, values = tuple_(*self._columns), [value for _, value in self.equal]
            yield columns > tuple_(*values, 0 if self.after is None else self.after)
            yield columns < tuple_(*values, _LARGEST if self.before is None else self.before)
            return
        yield from (column == value for column, value in self.equal)
        yield from self.match_sequences()

    def match_sequences(self) -> Iterator[ColumnElement[bool]]:
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


def _open_stretch(connection: Connection, where: GroupFilter, reach: Reach) -> _Stretch:
    """Of the narrowest index for what is named. Of outcomes, what is pending or unscored has one, and of purposes
    evaluations: of others there are too many for an index."""
    is_lost = where.reason is not None and not reach.is_walk
    outcome = "unscored" if is_lost and where.outcome is None else where.outcome
    outcome = outcome if outcome in {"pending", "unscored"} else None
    purpose = "eval" if where.purpose == "eval" else None
    scope = (("run", where.run), ("environment", where.environment))
    named: dict[str, str] = {name: value for name, value in scope if value is not None}
    terms: tuple[ColumnElement[bool], ...] = ()
    conditions = {**named, "outcome": outcome, "purpose": purpose}
    if where.task_id is not None:
        equal = {"task_id": where.task_id}
    elif outcome is not None:
        equal, terms = {**dict([*named.items()][:1]), "outcome": outcome}, (_IS_OPEN,)
    elif purpose is not None:
        equal, terms, conditions["purpose"] = dict([*named.items()][:1]), (_IS_EVAL,), None
    else:
        equal = named
    beside = (
        _hide(groups.c[name]) == value for name, value in conditions.items() if value is not None and name not in equal
    )
    patterns = ((groups.c.environment, where.environments), (groups.c.run, where.runs))
    within = (match_names(column, names) for column, names in patterns if names)
    # From indexes, which would have to be sorted.
    hidden_time = func.coalesce(groups.c.created_at, literal_column("0"))
    stretch = _Stretch(
        tuple((groups.c[name], value) for name, value in equal.items()),
        terms,
        (*beside, *within, *_match_times(where, hidden_time)),
        where.after,
        where.before,
        postgres=connection.dialect.name == "postgresql",
    )
    return stretch if reach.is_walk else _bound_times(connection, where, stretch)


_SKEW: Final = 3_600 * 10**6
"""Microseconds. Groups are stored nearly in the order of their times: replicas and slow judges differ by less."""


def _bound_times(connection: Connection, where: GroupFilter, stretch: _Stretch) -> _Stretch:
    """By the place of the times among the sequences, since the newest by sequence are wanted."""
    by_time = select(groups.c.sequence).limit(1)
    if where.since is not None:
        earlier = groups.c.created_at < to_micros(where.since) - _SKEW
        last = by_time.where(earlier).order_by(groups.c.created_at.desc(), groups.c.sequence.desc())
        stretch = stretch.narrow(after=connection.execute(last).scalar())
    if where.until is not None:
        later = groups.c.created_at > to_micros(where.until) + _SKEW
        first = by_time.where(later).order_by(groups.c.created_at, groups.c.sequence)
        stretch = stretch.narrow(before=connection.execute(first).scalar())
    return stretch


def _match_times(where: GroupFilter, created_at: ColumnElement[int]) -> Iterator[ColumnElement[bool]]:
    if where.since is not None:
        yield created_at >= to_micros(where.since)
    if where.until is not None:
        yield created_at < to_micros(where.until)


# Ways to find groups.


def _find_nothing(search: "GroupSearch") -> "GroupSearch | None":
    where = search.where
    names = (where.environment, where.run, where.task_id, where.judge, *where.task_ids)
    return None if is_storable(*(name for name in names if name is not None)) else search


def _find_by_words(search: "GroupSearch") -> "GroupSearch | None":
    if search.where.text is None:
        return None
    return replace(search.look_at_texts(), not_indexed=count_unindexed(search.connection))


def _find_of_tasks(search: "GroupSearch") -> "GroupSearch | None":
    where, most = search.where, search.reach.candidates
    if not where.task_ids:
        return None
    of_them = select(groups.c.sequence).where(groups.c.task_id.in_(where.task_ids), *search.stretch.match_each())
    order = groups.c.sequence.asc() if search.is_rising else groups.c.sequence.desc()
    newest = list(search.connection.execute(of_them.order_by(order).limit(most)).scalars())
    # Hundreds of names, which each look would compare again.
    found = replace(search, where=where.model_copy(update={"task_ids": ()}))
    return found.look_at(newest, (), newest[-1] if len(newest) == most else None)


def _find_in_runs(search: "GroupSearch") -> "GroupSearch | None":
    """Runs that a key may see have no index: they are looked up by name, and the newest groups of each are read."""
    where, connection = search.where, search.connection
    names = _list_allowed_runs(connection, where.runs) if where.runs and where.run is None else None
    if names is None:
        return None
    most = search.reach.candidates if search.narrowings else where.limit + 1
    sequences: list[int] = []
    for name in names:
        one = replace(search, where=where.model_copy(update={"run": name, "runs": ()}))
        newest = select(groups.c.sequence).where(*one.stretch.match()).order_by(*one.order)
        sequences += connection.execute(newest.limit(literal_column(str(most)))).scalars()
    newest_of_all = sorted(sequences, reverse=not search.is_rising)[:most]
    if not search.narrowings:
        shown = newest_of_all[: where.limit]
        return replace(
            search, matches=shown, looked_at=len(shown), edge=shown[-1] if len(newest_of_all) == most else None
        )
    return search.look_at(newest_of_all, (), newest_of_all[-1] if len(newest_of_all) == most else None)


def _list_stretch(search: "GroupSearch") -> "GroupSearch | None":
    """Whatever an index finds is shown, so it looks no further than the page."""
    if search.narrowings:
        return None
    limit = search.where.limit
    newest = select(*search.columns).where(*search.stretch.match()).order_by(*search.order)
    rows = search.connection.execute(newest.limit(limit + 1)).mappings().all()
    shown = [row["sequence"] for row in rows[:limit]]
    return replace(
        search, matches=shown, looked_at=len(shown), edge=shown[-1] if len(rows) > limit else None, rows=rows[:limit]
    )


FEW_TASKS: Final = 500
"""Of a label: so many tasks are asked for their groups, which finds a rare label among millions of groups."""


def _find_of_rare_tasks(search: "GroupSearch") -> "GroupSearch | None":
    where, connection, most = search.where, search.connection, search.reach.candidates
    if (where.label is None and where.scene is None) or where.task_id is not None:
        return None
    conditions = [*_match_task(where)]
    if where.environment is not None and where.scene is None:
        conditions.append(tasks.c.environment == where.environment)
    task_ids = list(connection.execute(select(tasks.c.task_id).where(*conditions).limit(FEW_TASKS + 1)).scalars())
    if len(task_ids) > FEW_TASKS:
        return None
    of_them = select(groups.c.sequence).where(groups.c.task_id.in_(task_ids), *search.stretch.match_sequences())
    sequences = list(connection.execute(of_them.limit(most + 1)).scalars()) if task_ids else []
    if len(sequences) > most:
        return None
    return search.look_at(sorted(sequences, reverse=not search.is_rising), [*search.stretch.match_each()], None)


def _find_by_tags(search: "GroupSearch") -> "GroupSearch | None":
    """What the index of texts tells, and what is right of the groups that it does not have."""
    where, most = search.where, search.reach.candidates
    if (where.flag is None and where.model is None) or where.task_id is not None:
        return None
    unindexed = list_unindexed(search.connection, *search.stretch.bounds, most, rising=search.is_rising)
    if len(unindexed) == most:
        return None
    beside = search.look_at(unindexed, [*search.stretch.match_each()], None)
    return search.look_at_texts().take_in(beside)


def _look_along(search: "GroupSearch") -> "GroupSearch | None":
    where = search.where
    if not search.reach.is_walk:
        return search.look_along()
    if where.label is not None and where.scene is None and where.environment is None:
        # Among whose groups one comes to those of the label sooner.
        environment = _find_only_environment(search.connection, where.label)
        search = replace(search, where=where.model_copy(update={"environment": environment}))
    return search.walk_along()


def _find_only_environment(connection: Connection, label: str) -> str | None:
    """None for a label of several."""
    of_label = tasks.c.label == encode_json(label)
    ends = select(func.min(tasks.c.environment), func.max(tasks.c.environment)).where(of_label)
    first, last = connection.execute(ends).one()
    return first if first == last else None


@dataclass(frozen=True)
class Way:
    """A way to find groups, and why a search takes it. `find` answers None where it does not apply."""

    name: str
    because: str
    find: "Callable[[GroupSearch], GroupSearch | None]"


WAYS: Final = (
    Way("nothing", "A name holds what the store cannot hold, so that no group has it.", _find_nothing),
    Way("words", "Words are asked for: the index of texts has them.", _find_by_words),
    Way("tasks", "Tasks are named: each has few groups.", _find_of_tasks),
    Way("runs", "A key sees a few runs: the newest groups of each are read.", _find_in_runs),
    Way("stretch", "An index tells all that is asked: no more than the page is read.", _list_stretch),
    Way("rare", "The label or scene has few tasks and groups: these are read.", _find_of_rare_tasks),
    Way("tags", "The index of texts has the flag or model, and lacks few groups: these are looked at.", _find_by_tags),
    Way("looks", "No index tells the rest: groups of the narrowest one are looked at.", _look_along),
)
"""Of which the first that applies is taken."""

_MOST_RUNS_LOOKED_UP: Final = 1_000
"""Names of runs that are compared with a key's patterns: to find each next name takes a search of the index."""
MOST_RUNS_READ: Final = 32
"""Runs of a key whose groups are read run by run: each takes a statement. With more of them, a search along all groups
soon comes to some."""


def _list_allowed_runs(connection: Connection, patterns: Sequence[str]) -> list[str] | None:
    """Runs of groups whose names are among these, or begin with them; None where there are too many of either."""
    first = select(func.min(groups.c.run).label("name")).cte("names", recursive=True)
    following = select(func.min(groups.c.run)).where(groups.c.run > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    checked = select(names.c.name, match_names(names.c.name, patterns).label("allowed"))
    rows = connection.execute(checked.where(names.c.name.is_not(None)).limit(_MOST_RUNS_LOOKED_UP + 1)).all()
    allowed = [name for name, is_allowed in rows if is_allowed]
    return None if len(rows) > _MOST_RUNS_LOOKED_UP or len(allowed) > MOST_RUNS_READ else allowed


# A search, and what it has found so far.


@dataclass
class GroupSearch:
    connection: Connection
    where: GroupFilter
    columns: Columns
    reach: Reach
    looked_at: int = 0
    edge: int | None = None
    """The last group that was looked at; None where all there are were."""
    matches: list[int] = field(default_factory=list)
    """Sequences, which may be more than the page holds."""
    rows: Sequence[RowMapping] | None = None
    """Of the matches, where they were read with them."""
    not_indexed: int | None = None
    way: Way | None = None

    @property
    def is_rising(self) -> bool:
        return self.where.after is not None

    @cached_property
    def stretch(self) -> "_Stretch":
        return _open_stretch(self.connection, self.where, self.reach)

    @cached_property
    def narrowings(self) -> tuple[ColumnElement[bool], ...]:
        return tuple(_build_narrowings(self.where))

    @property
    def order(self) -> list[ColumnElement[Any]]:
        return self.stretch.order(rising=self.is_rising)

    def look_along(self) -> "GroupSearch":
        """Piece by piece, for as long as a search may take."""
        began, stretch, piece_size = time.monotonic(), self.stretch, self.reach.at_once
        while True:
            piece_size = min(piece_size, self.reach.groups - self.looked_at)
            seen = self._read(stretch.match(), self.order, piece_size)
            self.edge = seen[-1] if len(seen) == piece_size else None
            taken = time.monotonic() - began
            is_far = self.looked_at >= self.reach.groups or taken > self.reach.seconds
            if self.edge is None or is_far or self._has_enough():
                return self
            piece_size = self._choose_next(self.looked_at, taken)
            stretch = stretch.narrow(after=self.edge) if self.is_rising else stretch.narrow(before=self.edge)

    def walk_along(self) -> "GroupSearch":
        """To as many matches as are wanted. The others are not counted, so that they need not be read. Purposes and
        outcomes are in the row of the group, and most groups have the usual ones; where something else is compared, a
        search ends after some sequences: a rare one would keep a reader for as long as a walk along all groups
        takes."""
        where, (after, before) = self.where, self.stretch.bounds
        others = where.model_copy(update={"purpose": None, "outcome": None})
        is_costly = bool(self.stretch.beside) or next(_build_narrowings(others), None) is not None
        end = min(before, after + self.reach.groups + 1) if is_costly else before
        ahead = (*self.stretch.narrow(before=end).match(), *self.narrowings)
        oldest = select(groups.c.sequence).where(*ahead).order_by(*self.order).limit(where.limit)
        matches = [*self.connection.execute(oldest).scalars()]
        edge = matches[-1] if len(matches) == where.limit else None if end == before else end - 1
        return replace(self, matches=matches, edge=edge)

    def look_at(
        self, sequences: Sequence[int], conditions: Sequence[ColumnElement[bool]], edge: int | None
    ) -> "GroupSearch":
        """At these, in their order, piece by piece too. `edge` is where the next search goes on after all of them."""
        if not self.narrowings and not conditions:
            return replace(self, looked_at=len(sequences), matches=[*sequences], edge=edge)
        found = replace(self, matches=[], edge=edge)
        began, end, piece_size = time.monotonic(), 0, self.reach.at_once
        newest_first = groups.c.sequence.asc() if self.is_rising else groups.c.sequence.desc()
        while end < len(sequences):
            piece = sequences[end : end + piece_size]
            found._read((groups.c.sequence.in_(piece), *conditions), [newest_first], None)
            taken, end = time.monotonic() - began, end + len(piece)
            if end < len(sequences) and (taken > self.reach.seconds or found._has_enough()):
                found.edge = piece[-1]
                return found
            piece_size = self._choose_next(end, taken)
        return found

    def look_at_texts(self) -> "GroupSearch":
        """At what the index of texts finds. What the index tells is not compared again."""
        others = replace(self, where=self.where.model_copy(update=dict.fromkeys(TAGGED)))
        conditions = [*replace(others.stretch, after=None, before=None).match_each()]
        is_whole = not others.narrowings and not conditions
        candidates = find_texts(
            self.connection,
            TextSearch(
                build_query(self.where),
                *others.stretch.bounds,
                rising=self.is_rising,
                page=self.where.limit + 1 if is_whole else self.reach.candidates,
                most=self.reach.candidates,
                seconds=self.reach.seconds,
            ),
        )
        return others.look_at(candidates.sequences, conditions, candidates.edge)

    def take_in(self, other: "GroupSearch") -> "GroupSearch":
        """What another search of the same order matches, as far as both looked."""
        nearest = min if self.is_rising else max
        edges = [edge for edge in (self.edge, other.edge) if edge is not None]
        edge, matches = (
            nearest(edges, default=None),
            sorted({*other.matches, *self.matches}, reverse=not self.is_rising),
        )
        passed = [one for one in matches if edge is None or nearest(one, edge) == one]
        return replace(self, edge=edge, matches=passed, looked_at=self.looked_at + other.looked_at)

    def _has_enough(self) -> bool:
        return not self.where.counts and len(self.matches) > self.where.limit

    def _read(
        self, conditions: Iterable[ColumnElement[bool]], order: Sequence[ColumnElement[Any]], most: int | None
    ) -> list[int]:
        matches = and_(true(), *self.narrowings).label("matches")
        rows = self.connection.execute(
            select(groups.c.sequence, matches).where(*conditions).order_by(*order).limit(most)
        ).all()
        self.looked_at += len(rows)
        self.matches += [row.sequence for row in rows if row.matches]
        return [row.sequence for row in rows]

    def _choose_next(self, looked_at: int, taken: float) -> int:
        """As many as there is time for at the pace so far, within bounds."""
        in_time = int(looked_at * (self.reach.seconds - taken) / max(taken, 1e-6))
        return max(self.reach.at_once, min(self.reach.most_at_once, in_time))

    def load_page(self) -> Sequence[RowMapping]:
        shown = self.matches[: self.where.limit]
        return load_rows(self.connection, shown, self.columns) if self.rows is None else self.rows

    @property
    def next_before(self) -> int | None:
        """Where the next page goes on."""
        limit = self.where.limit
        return self.matches[limit - 1] if len(self.matches) > limit else self.edge


# What is asked of groups that no index tells.


def _build_narrowings(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    """What is looked for group by group."""
    if where.task_ids:
        yield groups.c.task_id.in_(where.task_ids)
    if where.outcome == "scored":
        yield groups.c.outcome == "scored"
    if where.purpose == "train":
        yield groups.c.purpose == "train"
    yield from _match_ranges(where)
    if where.label is not None or where.scene is not None:
        yield _is_any(tasks.c.task_id == groups.c.task_id, *_match_task(where))
    if where.model is not None:
        yield groups.c.model == encode_json(where.model)
    if where.judge is not None:
        own = and_(judgements.c.scoring_sequence.is_(None), judgements.c.purpose.is_(None))
        yield _is_any(judgements.c.group_sequence == groups.c.sequence, judgements.c.judge == where.judge, own)
    of_group = rollouts.c.group_sequence == groups.c.sequence
    if where.reason is not None:
        yield _is_any(of_group, rollouts.c.reason == where.reason)
    if where.flag is not None:
        yield or_(_lists(groups.c.flags, where.flag), _is_any(of_group, _lists(rollouts.c.score, where.flag)))


def _match_task(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    """Tasks with this label and scene, by the index of scenes where one is named: a scene has fewer than a label."""
    if where.label is not None:
        column: ColumnElement[Any] = tasks.c.label if where.scene is None else func.coalesce(tasks.c.label, null())
        yield column == encode_json(where.label)
    if where.scene is not None:
        yield tasks.c.scene == encode_json(where.scene)


def _is_any(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether there is such a row. Not EXISTS, for which PostgreSQL may read the other table whole."""
    return select(literal_column("1")).where(*conditions).correlate(groups).limit(1).scalar_subquery().is_not(None)


def _match_ranges(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    for column, least, most in (
        (groups.c.step, where.min_step, where.max_step),
        (groups.c.mean, where.min_mean, where.max_mean),
        (groups.c.std, where.min_std, where.max_std),
    ):
        if least is not None:
            yield column >= least
        if most is not None:
            yield column <= most


def _lists(column: ColumnElement[str], word: str) -> ColumnElement[bool]:
    """Whether a list of the JSON object holds the word, and no name or value beside: quotes in texts are escaped."""
    forms = dict.fromkeys((encode_json(word), to_json(word).decode()))  # of letters beyond ASCII there are two
    return or_(
        *(column.contains(f"{begin}{form}{end}", autoescape=True) for form in forms for begin in "[," for end in ",]"),
    )
