"""Finds groups by what has an index and by what has none: of the latter never more than the newest LOOKED_AT groups."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    func,
    literal_column,
    null,
    select,
    true,
)

from app.domain.groups import GroupFilter, GroupOrder
from app.store.bounded_runs import list_allowed_runs, list_newest
from app.store.group_narrowings import build_narrowings, match_task
from app.store.group_places import Stretch, open_stretch
from app.store.rows import match_names, to_micros
from app.store.tables import groups, tasks
from app.store.text_index_store import count_unindexed, list_unindexed
from app.store.text_search import TAGGED, TextSearch, build_query, find_texts

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
