"""What groups are compared with one by one, since no index tells it."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
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

from app.domain.groups import GroupFilter, GroupOrder
from app.domain.runs import Policy
from app.store.group_rows import GroupHead
from app.store.statements import encode, encode_json, match_names, to_micros
from app.store.tables import groups, judgements, rollouts, tasks
from app.store.text_index import TAGGED, TextSearch, build_query, count_unindexed, find_texts, list_unindexed


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
        yield _has_model(where.model)
    if where.judge is not None:
        own = and_(judgements.c.scoring_sequence.is_(None), judgements.c.purpose.is_(None))
        yield _is_any(judgements.c.group_sequence == groups.c.sequence, judgements.c.judge == where.judge, own)
    of_group = rollouts.c.group_sequence == groups.c.sequence
    if where.reason is not None:
        yield _is_any(of_group, rollouts.c.reason == where.reason)
    if where.flag is not None:
        yield or_(_lists(groups.c.head, where.flag), _is_any(of_group, _lists(rollouts.c.score, where.flag)))


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


def _has_model(model: str) -> ColumnElement[bool]:
    """The model is what heads begin with."""
    begun = encode(GroupHead(policy=Policy(model=model))).removesuffix("}}")
    return func.substr(groups.c.head, 1, len(begun)) == begun


def _lists(column: ColumnElement[str], word: str) -> ColumnElement[bool]:
    """Whether a list of the JSON object holds the word, and no name or value beside: quotes in texts are escaped."""
    forms = dict.fromkeys((encode_json(word), to_json(word).decode()))  # of letters beyond ASCII there are two
    return or_(
        *(column.contains(f"{begin}{told}{end}", autoescape=True) for told in forms for begin in "[," for end in ",]"),
    )


# Where groups stand: each index of groups begins with columns that a filter names, and goes on by sequence.

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


# Which runs a key may see has no index: its runs are looked up, and the newest groups of each are read.

MOST_KNOWN: Final = 1_000
"""Runs that are looked up: each takes a search of the index."""
MOST_READ: Final = 32


def list_allowed_runs(connection: Connection, patterns: Sequence[str]) -> list[str] | None:
    """Runs of groups whose names are among these. None where there are many: then one soon comes to some."""
    first = select(func.min(groups.c.run).label("name")).cte("names", recursive=True)
    following = select(func.min(groups.c.run)).where(groups.c.run > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    told = select(names.c.name, match_names(names.c.name, patterns).label("allowed"))
    found = connection.execute(told.where(names.c.name.is_not(None)).limit(MOST_KNOWN + 1)).all()
    allowed = [name for name, is_allowed in found if is_allowed]
    return None if len(found) > MOST_KNOWN or len(allowed) > MOST_READ else allowed


def list_newest(connection: Connection, stretches: Iterable[Stretch], most: int, *, rising: bool) -> list[int]:
    """Sequences of all stretches together."""
    found: list[int] = []
    for stretch in stretches:
        wanted = select(groups.c.sequence).where(*stretch.match()).order_by(*stretch.order(rising=rising))
        found += connection.execute(wanted.limit(literal_column(str(most)))).scalars()
    return sorted(found, reverse=not rising)[:most]


# Finds groups by what has an index and by what has none: of the latter never more than the newest LOOKED_AT groups.

LOOKED_AT: Final = 2_000
"""Groups that one search looks at."""
AT_ONCE: Final = 100
MOST_AT_ONCE: Final = 250
"""However quick it was so far: what comes next may have to come from the disk, and a piece is read to its end."""
SECONDS: Final = 0.1
"""A search that has taken longer looks at no more: groups on the disk take twenty times as long as those in memory."""
FEW_TASKS: Final = 500
"""Of a label: so many tasks are asked for their groups, which finds a rare label among millions of groups."""
_SKEW: Final = 3_600 * 10**6
"""Microseconds. Groups are stored nearly in the order of their times: replicas and slow judges differ by less."""

_SORTED_BY: Final[Mapping[GroupOrder, ColumnElement[Any]]] = {
    "time": groups.c.sequence,
    "environment": groups.c.environment,
    "task": select(tasks.c.title).where(tasks.c.task_id == groups.c.task_id).scalar_subquery(),
    "run": groups.c.run,
    "step": groups.c.step,
    "size": groups.c.size,
    "mean": groups.c.mean,
    "std": groups.c.std,
    "outcome": groups.c.outcome,
}

Columns = Sequence[Column[Any]]
"""Of groups that are found, the sequence among them."""
ALL_COLUMNS: Final[Columns] = tuple(groups.c)


@dataclass(frozen=True)
class FoundRows:
    """As `FoundGroups`, with rows of the table."""

    rows: Sequence[RowMapping]
    next_before: int | None
    looked_at: int
    matched: int
    not_indexed: int | None = None


def find_rows(connection: Connection, where: GroupFilter, columns: Columns = ALL_COLUMNS) -> FoundRows:
    narrowings = tuple(build_narrowings(where))
    stretch = _open_filtered(connection, where)
    search = _Search(connection, where, narrowings, columns)
    if where.text is not None:
        found = _find_by_words(connection, where, columns)
        return replace(found.build_page(), not_indexed=count_unindexed(connection))
    if where.task_ids:
        named = _name_groups_of_tasks(connection, where, stretch)
        others = where.model_copy(update={"task_ids": ()})  # hundreds, which each look would compare again
        search = _Search(connection, where, tuple(build_narrowings(others)), columns)
        search.look_at(named, (), named[-1] if len(named) == LOOKED_AT else None)
        return search.build_page()
    is_plain = not narrowings and where.order is None
    if where.runs and where.run is None and where.skip <= LOOKED_AT:
        names = list_allowed_runs(connection, where.runs)
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


def _look_at_unindexed(search: "_Search", stretch: Stretch) -> "_Search | None":
    """At groups that the index does not have. None where there are too many of them to be looked at."""
    rising = search.where.after is not None
    unindexed = list_unindexed(search.connection, *stretch.bounds, LOOKED_AT, rising=rising)
    if len(unindexed) == LOOKED_AT:
        return None
    search.look_at(unindexed, [*stretch.match_each()], None)
    return search


def _find_by_words(
    connection: Connection, where: GroupFilter, columns: Columns, beside: "_Search | None" = None
) -> "_Search":
    """What the index of texts finds, and what was found `beside` it. What the index tells is not compared again."""
    others = where.model_copy(update=dict.fromkeys(TAGGED))
    stretch, rising = _open_filtered(connection, others), where.after is not None
    narrowings, conditions = tuple(build_narrowings(others)), [*replace(stretch, after=None, before=None).match_each()]
    is_whole = not narrowings and not conditions and where.order is None
    page = where.skip + where.limit + 1 if is_whole else LOOKED_AT
    candidates = find_texts(
        connection,
        TextSearch(build_query(where), *stretch.bounds, rising=rising, page=page, most=LOOKED_AT, seconds=SECONDS),
    )
    search = _Search(connection, others, narrowings, columns)
    search.look_at(candidates.sequences, conditions, candidates.edge)
    if beside is not None:
        search.take_in(beside)
    return search


def _find_in_runs(search: "_Search", names: Sequence[str], *, is_plain: bool) -> FoundRows:
    where, connection = search.where, search.connection
    of_each = [where.model_copy(update={"run": name, "runs": ()}) for name in names]
    stretches = [_open_filtered(connection, one) for one in of_each]
    most = where.skip + where.limit + 1 if is_plain else LOOKED_AT
    newest = list_newest(connection, stretches, most, rising=where.after is not None)
    if not is_plain:
        search.look_at(newest, (), newest[-1] if len(newest) == most else None)
        return search.build_page()
    shown = newest[where.skip : where.skip + where.limit]
    seen = where.skip + len(shown) if shown else 0
    return FoundRows(
        load_rows(connection, shown, search.columns), shown[-1] if len(newest) == most else None, seen, seen
    )


def _list_rows(search: "_Search", stretch: Stretch) -> FoundRows:
    """Whatever an index finds is shown, so it looks no further than the page."""
    where, order = search.where, stretch.order(rising=search.where.after is not None)
    wanted = select(*search.columns).where(*stretch.match()).order_by(*order)
    found = search.connection.execute(wanted.offset(where.skip).limit(where.limit + 1)).mappings().all()
    shown = found[: where.limit]
    seen = where.skip + len(shown) if shown else 0
    return FoundRows(shown, shown[-1]["sequence"] if len(found) > where.limit else None, seen, seen)


@dataclass
class _Search:
    connection: Connection
    where: GroupFilter
    narrowings: tuple[ColumnElement[bool], ...]
    columns: Columns
    looked_at: int = 0
    edge: int | None = None
    """The last group that was looked at; None where all there are were."""
    found: list[tuple[int, Any]] = field(default_factory=list)
    """Sequences of what matches, with what they are sorted by."""

    def look_along(self, stretch: Stretch) -> None:
        """Piece by piece, for as long as a search may take."""
        began = time.monotonic()
        rising, wanted = self.where.after is not None, AT_ONCE
        while True:
            wanted = min(wanted, LOOKED_AT - self.looked_at)
            seen = self._read(stretch.match(), stretch.order(rising=rising), wanted)
            self.edge = seen[-1] if len(seen) == wanted else None
            taken = time.monotonic() - began
            if self.edge is None or self.looked_at >= LOOKED_AT or taken > SECONDS or self._has_enough():
                return
            wanted = _choose_next(self.looked_at, taken)
            stretch = stretch.narrow(after=self.edge) if rising else stretch.narrow(before=self.edge)

    def look_at(self, sequences: Sequence[int], conditions: Sequence[ColumnElement[bool]], edge: int | None) -> None:
        """At these, in their order, piece by piece too. `edge` is where the next search goes on after all of them."""
        self.edge = edge
        if not self.narrowings and not conditions and self.where.order is None:
            self.looked_at, self.found = len(sequences), [(sequence, None) for sequence in sequences]
            return
        began, end, wanted = time.monotonic(), 0, AT_ONCE
        newest_first = groups.c.sequence.asc() if self.where.after is not None else groups.c.sequence.desc()
        while end < len(sequences):
            piece = sequences[end : end + wanted]
            self._read((groups.c.sequence.in_(piece), *conditions), [newest_first], None)
            taken, end = time.monotonic() - began, end + len(piece)
            if end < len(sequences) and (taken > SECONDS or self._has_enough()):
                self.edge = piece[-1]
                return
            wanted = _choose_next(end, taken)

    def take_in(self, other: "_Search") -> None:
        """What another search of the same order found, as far as both looked."""
        nearest = min if self.where.after is not None else max
        edges = [edge for edge in (self.edge, other.edge) if edge is not None]
        self.edge = nearest(edges, default=None)
        found = {**dict(other.found), **dict(self.found)}
        self.found = [(one, found[one]) for one in sorted(found, reverse=nearest is max) if self._has_passed(one)]
        self.looked_at += other.looked_at

    def _has_passed(self, sequence: int) -> bool:
        if self.edge is None:
            return True
        return sequence <= self.edge if self.where.after is not None else sequence >= self.edge

    def _has_enough(self) -> bool:
        where = self.where
        return not where.counts and where.order is None and len(self.found) > where.skip + where.limit

    def _read(
        self, conditions: Iterable[ColumnElement[bool]], order: Sequence[ColumnElement[Any]], most: int | None
    ) -> list[int]:
        matches = and_(true(), *self.narrowings).label("matches")
        by = null() if self.where.order is None else _SORTED_BY[self.where.order]
        columns = (groups.c.sequence, matches, by.label("by"))
        rows = self.connection.execute(select(*columns).where(*conditions).order_by(*order).limit(most)).all()
        self.looked_at += len(rows)
        self.found += [(row.sequence, row.by) for row in rows if row.matches]
        return [row.sequence for row in rows]

    def build_page(self) -> FoundRows:
        where = self.where
        ordered = [sequence for sequence, _ in self._sort()]
        shown = ordered[where.skip : where.skip + where.limit]
        is_cut = where.order is None and len(ordered) > where.skip + where.limit
        rows = load_rows(self.connection, shown, self.columns)
        return FoundRows(rows, shown[-1] if is_cut else self.edge, self.looked_at, len(ordered))

    def _sort(self) -> list[tuple[int, Any]]:
        """What has no value comes last, whichever way the others are."""
        if self.where.order is None:
            return self.found
        without = [one for one in self.found if one[1] is None]
        valued = sorted(
            (one for one in self.found if one[1] is not None), key=itemgetter(1), reverse=self.where.descending
        )
        return valued + without


def _choose_next(looked_at: int, taken: float) -> int:
    """As many as there is time for at the pace so far, within bounds."""
    in_time = int(looked_at * (SECONDS - taken) / max(taken, 1e-6))
    return max(AT_ONCE, min(MOST_AT_ONCE, in_time))


def load_rows(connection: Connection, sequences: Sequence[int], columns: Columns = ALL_COLUMNS) -> list[RowMapping]:
    if not sequences:
        return []
    rows = connection.execute(select(*columns).where(groups.c.sequence.in_(sequences))).mappings()
    found = {row["sequence"]: row for row in rows}
    return [found[sequence] for sequence in sequences if sequence in found]


def _name_groups_of_tasks(connection: Connection, where: GroupFilter, stretch: Stretch) -> list[int]:
    """The newest of these tasks, in the order of the search."""
    of_them = select(groups.c.sequence).where(groups.c.task_id.in_(where.task_ids), *stretch.match_each())
    order = groups.c.sequence.desc() if where.after is None else groups.c.sequence.asc()
    return list(connection.execute(of_them.order_by(order).limit(LOOKED_AT)).scalars())


def _name_rare(connection: Connection, where: GroupFilter) -> list[int] | None:
    """All groups of a label or scene that has few; None for another."""
    if (where.label is None and where.scene is None) or where.task_id is not None:
        return None
    named = [*match_task(where.label, where.scene)]
    if where.environment is not None and where.scene is None:
        named.append(tasks.c.environment == where.environment)
    made = list(connection.execute(select(tasks.c.task_id).where(*named).limit(FEW_TASKS + 1)).scalars())
    if len(made) > FEW_TASKS:
        return None
    of_them = select(groups.c.sequence).where(groups.c.task_id.in_(made)).limit(LOOKED_AT + 1)
    found = list(connection.execute(of_them).scalars()) if made else []
    return found if len(found) <= LOOKED_AT else None


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
