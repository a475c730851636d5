"""The search for groups by a filter: what an index tells is found by it, the rest is compared group by group.

Each index of groups begins with columns that a filter may name and goes on by sequence. So the newest groups with these
values are a stretch of one index, and a page of them is read without looking at others. What has no index (ranges of
rewards, reasons, flags, labels of many tasks) is compared for the groups of a stretch, the newest first, until a bound
of groups or of time is reached; the page then says where the next search goes on. Words of texts have an index of their
own (`text_index`).

SQLite finds the index by these columns. PostgreSQL guesses how many groups have the values, and where it takes them for
frequent it walks along all groups instead, past millions of others. So it is told a stretch of the index as a
comparison of rows, in an order that no other index has.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from app.store.statements import encode_json, match_names, to_micros
from app.store.tables import groups, judgements, rollouts, tasks
from app.store.text_index import TAGGED, TextSearch, build_query, count_unindexed, find_texts, list_unindexed

LOOKED_AT: Final = 2_000
"""Groups that one search looks at."""
SECONDS: Final = 0.1
"""A search that has taken longer looks at no more: groups on the disk take twenty times as long as those in memory."""
AT_ONCE: Final = 100
MOST_AT_ONCE: Final = 250
"""However quick it was so far: what comes next may have to come from the disk, and a piece is read to its end."""
_Columns = Sequence[Column[Any]]
"""Of groups that are found, the sequence among them."""
_ALL_COLUMNS: Final[_Columns] = tuple(groups.c)


@dataclass(frozen=True)
class _FoundRows:
    """As `FoundGroups`, with rows of the table."""

    rows: Sequence[RowMapping]
    next_before: int | None
    looked_at: int
    matched: int
    not_indexed: int | None = None


def find_rows(connection: Connection, where: GroupFilter, columns: _Columns = _ALL_COLUMNS) -> _FoundRows:
    """By words, by named tasks, by the few runs that a key may see, along a stretch to the end of a page, by the tasks
    of a rare label, and only where none of these will do group by group."""
    narrowings = tuple(build_narrowings(where))
    stretch = _open_filtered(connection, where)
    search = _Search(connection, where, narrowings, columns)
    if where.text is not None:
        by_words = _find_by_words(connection, where, columns)
        return replace(by_words.build_page(), not_indexed=count_unindexed(connection))
    if where.task_ids:
        of_tasks = _name_groups_of_tasks(connection, where, stretch)
        others = where.model_copy(update={"task_ids": ()})  # hundreds, which each look would compare again
        search = _Search(connection, where, tuple(build_narrowings(others)), columns)
        search.look_at(of_tasks, (), of_tasks[-1] if len(of_tasks) == LOOKED_AT else None)
        return search.build_page()
    is_plain = not narrowings
    if where.runs and where.run is None:
        names = _list_allowed_runs(connection, where.runs)
        if names is not None:
            return _find_in_runs(search, names, is_plain=is_plain)
    if is_plain:
        return _list_rows(search, stretch)
    few = _name_rare(connection, where)
    if few is not None:
        search.look_at(sorted(few, reverse=where.after is None), [*stretch.match_each()], None)
        return search.build_page()
    if (where.flag is not None or where.model is not None) and where.task_id is None:
        near = _look_at_unindexed(search, stretch)
        if near is not None:
            return _find_by_words(connection, where, columns, near).build_page()
    search.look_along(stretch)
    return search.build_page()


def load_rows(connection: Connection, sequences: Sequence[int], columns: _Columns = _ALL_COLUMNS) -> list[RowMapping]:
    if not sequences:
        return []
    rows = connection.execute(select(*columns).where(groups.c.sequence.in_(sequences))).mappings()
    by_sequence = {row["sequence"]: row for row in rows}
    return [by_sequence[sequence] for sequence in sequences if sequence in by_sequence]


# Stretches: each index of groups begins with columns that a filter names, and goes on by sequence.

_LARGEST: Final = 2**63 - 1
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
        yield from self._match_sequences()

    def match(self) -> Iterator[ColumnElement[bool]]:
        yield from (*self.terms, *self.beside)
        if self.equal and self.postgres:
            columns, values = tuple_(*self._columns), [value for _, value in self.equal]
            yield columns > tuple_(*values, 0 if self.after is None else self.after)
            yield columns < tuple_(*values, _LARGEST if self.before is None else self.before)
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
    conditions = {**named, "outcome": outcome, "purpose": purpose}
    beside = (
        _hide(groups.c[name]) == value for name, value in conditions.items() if value is not None and name not in equal
    )
    return Stretch(
        tuple((groups.c[name], value) for name, value in equal.items()),
        terms,
        tuple(beside),
        postgres=postgres,
    )


def _open_filtered(connection: Connection, where: GroupFilter) -> Stretch:
    """What an index finds."""
    outcome = "unscored" if where.reason is not None and where.outcome is None else where.outcome
    stretch = open_stretch(
        connection,
        environment=where.environment,
        run=where.run,
        outcome=outcome if outcome in {"pending", "unscored"} else None,
        purpose="eval" if where.purpose == "eval" else None,
        task_id=where.task_id,
    )
    patterns = ((groups.c.environment, where.environments), (groups.c.run, where.runs))
    within = tuple(match_names(column, names) for column, names in patterns if names)
    stretch = replace(stretch, beside=(*stretch.beside, *within))
    return _bound_times(connection, where, stretch.narrow(after=where.after, before=where.before))


_SKEW: Final = 3_600 * 10**6
"""Microseconds. Groups are stored nearly in the order of their times: replicas and slow judges differ by less."""


def _bound_times(connection: Connection, where: GroupFilter, stretch: Stretch) -> Stretch:
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
    return replace(stretch, beside=(*stretch.beside, *_match_times(where)))


def _match_times(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    hidden = func.coalesce(groups.c.created_at, literal_column("0"))  # from indexes: they would have to be sorted
    if where.since is not None:
        yield hidden >= to_micros(where.since)
    if where.until is not None:
        yield hidden < to_micros(where.until)


# Ways to find groups: along a stretch to the page's end, by the tasks that have them, or by the index of texts.


def _list_rows(search: "_Search", stretch: Stretch) -> _FoundRows:
    """Whatever an index finds is shown, so it looks no further than the page."""
    where, order = search.where, stretch.order(rising=search.where.after is not None)
    newest = select(*search.columns).where(*stretch.match()).order_by(*order)
    rows = search.connection.execute(newest.limit(where.limit + 1)).mappings().all()
    shown = rows[: where.limit]
    return _FoundRows(shown, shown[-1]["sequence"] if len(rows) > where.limit else None, len(shown), len(shown))


def _name_groups_of_tasks(connection: Connection, where: GroupFilter, stretch: Stretch) -> list[int]:
    """The newest of these tasks, in the order of the search."""
    of_them = select(groups.c.sequence).where(groups.c.task_id.in_(where.task_ids), *stretch.match_each())
    order = groups.c.sequence.desc() if where.after is None else groups.c.sequence.asc()
    return list(connection.execute(of_them.order_by(order).limit(LOOKED_AT)).scalars())


FEW_TASKS: Final = 500
"""Of a label: so many tasks are asked for their groups, which finds a rare label among millions of groups."""


def _name_rare(connection: Connection, where: GroupFilter) -> list[int] | None:
    """All groups of a label or scene that has few; None for another."""
    if (where.label is None and where.scene is None) or where.task_id is not None:
        return None
    conditions = [*match_task(where.label, where.scene)]
    if where.environment is not None and where.scene is None:
        conditions.append(tasks.c.environment == where.environment)
    task_ids = list(connection.execute(select(tasks.c.task_id).where(*conditions).limit(FEW_TASKS + 1)).scalars())
    if len(task_ids) > FEW_TASKS:
        return None
    of_them = select(groups.c.sequence).where(groups.c.task_id.in_(task_ids)).limit(LOOKED_AT + 1)
    sequences = list(connection.execute(of_them).scalars()) if task_ids else []
    return sequences if len(sequences) <= LOOKED_AT else None


def _look_at_unindexed(search: "_Search", stretch: Stretch) -> "_Search | None":
    """At groups that the index does not have. None where there are too many of them to be looked at."""
    rising = search.where.after is not None
    unindexed = list_unindexed(search.connection, *stretch.bounds, LOOKED_AT, rising=rising)
    if len(unindexed) == LOOKED_AT:
        return None
    search.look_at(unindexed, [*stretch.match_each()], None)
    return search


def _find_by_words(
    connection: Connection, where: GroupFilter, columns: _Columns, beside: "_Search | None" = None
) -> "_Search":
    """What the index of texts finds, and what was found `beside` it. What the index tells is not compared again."""
    others = where.model_copy(update=dict.fromkeys(TAGGED))
    stretch, rising = _open_filtered(connection, others), where.after is not None
    narrowings, conditions = tuple(build_narrowings(others)), [*replace(stretch, after=None, before=None).match_each()]
    is_whole = not narrowings and not conditions
    page = where.limit + 1 if is_whole else LOOKED_AT
    candidates = find_texts(
        connection,
        TextSearch(build_query(where), *stretch.bounds, rising=rising, page=page, most=LOOKED_AT, seconds=SECONDS),
    )
    search = _Search(connection, others, narrowings, columns)
    search.look_at(candidates.sequences, conditions, candidates.edge)
    if beside is not None:
        search.take_in(beside)
    return search


# Runs that a key may see have no index: they are looked up by name, and the newest groups of each are read.

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


def _find_in_runs(search: "_Search", names: Sequence[str], *, is_plain: bool) -> _FoundRows:
    where, connection = search.where, search.connection
    of_each = [where.model_copy(update={"run": name, "runs": ()}) for name in names]
    stretches = [_open_filtered(connection, one) for one in of_each]
    most = where.limit + 1 if is_plain else LOOKED_AT
    newest = _list_newest(connection, stretches, most, rising=where.after is not None)
    if not is_plain:
        search.look_at(newest, (), newest[-1] if len(newest) == most else None)
        return search.build_page()
    shown = newest[: where.limit]
    rows, following = load_rows(connection, shown, search.columns), shown[-1] if len(newest) == most else None
    return _FoundRows(rows, following, len(shown), len(shown))


def _list_newest(connection: Connection, stretches: Iterable[Stretch], most: int, *, rising: bool) -> list[int]:
    """Sequences of all stretches together."""
    sequences: list[int] = []
    for stretch in stretches:
        newest = select(groups.c.sequence).where(*stretch.match()).order_by(*stretch.order(rising=rising))
        sequences += connection.execute(newest.limit(literal_column(str(most)))).scalars()
    return sorted(sequences, reverse=not rising)[:most]


# Looking at groups one by one, for what no index tells.


@dataclass
class _Search:
    connection: Connection
    where: GroupFilter
    narrowings: tuple[ColumnElement[bool], ...]
    columns: _Columns
    looked_at: int = 0
    edge: int | None = None
    """The last group that was looked at; None where all there are were."""
    matches: list[int] = field(default_factory=list)
    """Sequences."""

    def look_along(self, stretch: Stretch) -> None:
        """Piece by piece, for as long as a search may take."""
        began = time.monotonic()
        rising, piece_size = self.where.after is not None, AT_ONCE
        while True:
            piece_size = min(piece_size, LOOKED_AT - self.looked_at)
            seen = self._read(stretch.match(), stretch.order(rising=rising), piece_size)
            self.edge = seen[-1] if len(seen) == piece_size else None
            taken = time.monotonic() - began
            if self.edge is None or self.looked_at >= LOOKED_AT or taken > SECONDS or self._has_enough():
                return
            piece_size = _choose_next(self.looked_at, taken)
            stretch = stretch.narrow(after=self.edge) if rising else stretch.narrow(before=self.edge)

    def look_at(self, sequences: Sequence[int], conditions: Sequence[ColumnElement[bool]], edge: int | None) -> None:
        """At these, in their order, piece by piece too. `edge` is where the next search goes on after all of them."""
        self.edge = edge
        if not self.narrowings and not conditions:
            self.looked_at, self.matches = len(sequences), [*sequences]
            return
        began, end, piece_size = time.monotonic(), 0, AT_ONCE
        newest_first = groups.c.sequence.asc() if self.where.after is not None else groups.c.sequence.desc()
        while end < len(sequences):
            piece = sequences[end : end + piece_size]
            self._read((groups.c.sequence.in_(piece), *conditions), [newest_first], None)
            taken, end = time.monotonic() - began, end + len(piece)
            if end < len(sequences) and (taken > SECONDS or self._has_enough()):
                self.edge = piece[-1]
                return
            piece_size = _choose_next(end, taken)

    def take_in(self, other: "_Search") -> None:
        """What another search of the same order matches, as far as both looked."""
        nearest = min if self.where.after is not None else max
        edges = [edge for edge in (self.edge, other.edge) if edge is not None]
        self.edge = nearest(edges, default=None)
        matches = sorted({*other.matches, *self.matches}, reverse=nearest is max)
        self.matches = [one for one in matches if self._has_passed(one)]
        self.looked_at += other.looked_at

    def _has_passed(self, sequence: int) -> bool:
        if self.edge is None:
            return True
        return sequence <= self.edge if self.where.after is not None else sequence >= self.edge

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

    def build_page(self) -> _FoundRows:
        shown = self.matches[: self.where.limit]
        is_cut = len(self.matches) > self.where.limit
        rows = load_rows(self.connection, shown, self.columns)
        return _FoundRows(rows, shown[-1] if is_cut else self.edge, self.looked_at, len(self.matches))


def _choose_next(looked_at: int, taken: float) -> int:
    """As many as there is time for at the pace so far, within bounds."""
    in_time = int(looked_at * (SECONDS - taken) / max(taken, 1e-6))
    return max(AT_ONCE, min(MOST_AT_ONCE, in_time))


def build_narrowings(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    """What is looked for group by group."""
    if where.task_ids:
        yield groups.c.task_id.in_(where.task_ids)
    if where.outcome == "scored":
        yield groups.c.outcome == "scored"
    if where.purpose == "train":
        yield groups.c.purpose == "train"
    yield from _match_ranges(where)
    if where.label is not None or where.scene is not None:
        yield _is_any(tasks.c.task_id == groups.c.task_id, *match_task(where.label, where.scene))
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


def match_task(label: str | None, scene: str | None) -> Iterator[ColumnElement[bool]]:
    """Tasks with these, by the index of scenes where one is named: a scene has fewer than a label."""
    if label is not None:
        column: ColumnElement[Any] = tasks.c.label if scene is None else func.coalesce(tasks.c.label, null())
        yield column == encode_json(label)
    if scene is not None:
        yield tasks.c.scene == encode_json(scene)


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
