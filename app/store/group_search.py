"""Finds groups by what has an index and by what has none: of the latter never more than the newest LOOKED_AT groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, literal_column, or_, select

from app.domain.groups import GroupFilter, GroupOrder
from app.domain.runs import Policy
from app.store.group_rows import GroupHead
from app.store.judge_tables import judgements
from app.store.rows import encode, encode_json, match_names, to_micros
from app.store.tables import groups, rollouts, tasks

LOOKED_AT: Final = 2_000
"""Groups that one search looks at. The flags of as many groups of sixteen are read in a few tenths of a second."""
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


@dataclass(frozen=True)
class Window:
    """The groups that are looked at. `edge` is the last of them; None where all there are were looked at."""

    conditions: tuple[ColumnElement[bool], ...]
    looked_at: int
    edge: int | None


@dataclass(frozen=True)
class FoundRows:
    """As `FoundGroups`, with rows of the table."""

    rows: Sequence[RowMapping]
    next_before: int | None
    looked_at: int
    matched: int


def find_rows(connection: Connection, where: GroupFilter) -> FoundRows:
    narrowings = tuple(build_narrowings(where))
    if not narrowings and where.order is None:
        return _list_rows(connection, where)
    window = _open_rare_label(connection, where) or _open_newest(connection, where)
    wanted = select(groups.c.sequence).where(*window.conditions, *narrowings).order_by(*_order(where))
    found = list(connection.execute(wanted).scalars())
    shown = found[where.skip : where.skip + where.limit]
    is_cut = where.order is None and len(found) > where.skip + where.limit
    rows = _load_rows(connection, shown)
    return FoundRows(rows, shown[-1] if is_cut else window.edge, window.looked_at, len(found))


def _list_rows(connection: Connection, where: GroupFilter) -> FoundRows:
    """Whatever an index finds is shown, so it looks no further than the page."""
    wanted = select(groups).where(*build_conditions(where)).order_by(*_order(where))
    found = connection.execute(wanted.offset(where.skip).limit(where.limit + 1)).mappings().all()
    shown = found[: where.limit]
    seen = where.skip + len(shown) if shown else 0
    return FoundRows(shown, shown[-1]["sequence"] if len(found) > where.limit else None, seen, seen)


def _load_rows(connection: Connection, sequences: Sequence[int]) -> list[RowMapping]:
    if not sequences:
        return []
    rows = connection.execute(select(groups).where(groups.c.sequence.in_(sequences))).mappings()
    found = {row["sequence"]: row for row in rows}
    return [found[sequence] for sequence in sequences if sequence in found]


def _order(where: GroupFilter) -> Iterator[ColumnElement[Any]]:
    newest_first = groups.c.sequence.asc() if where.after is not None else groups.c.sequence.desc()
    if where.order is not None:
        column = _SORTED_BY[where.order]
        yield column.is_(None)
        yield column.desc() if where.descending else column.asc()
    yield newest_first


def _open_newest(connection: Connection, where: GroupFilter) -> Window:
    conditions = (*build_conditions(where), *_bound_times(connection, where))
    rising = where.after is not None
    order = groups.c.sequence.asc() if rising else groups.c.sequence.desc()
    seen = connection.execute(select(groups.c.sequence).where(*conditions).order_by(order).limit(LOOKED_AT))
    sequences = list(seen.scalars())
    if len(sequences) < LOOKED_AT:
        return Window(conditions, len(sequences), None)
    edge = sequences[-1]
    here = groups.c.sequence <= edge if rising else groups.c.sequence >= edge
    return Window((*conditions, here), LOOKED_AT, edge)


def _open_rare_label(connection: Connection, where: GroupFilter) -> Window | None:
    """All groups of a label that has few; None for another."""
    if where.label is None or where.task_id is not None:
        return None
    named = [tasks.c.label == encode_json(where.label)]
    if where.environment is not None:
        named.append(tasks.c.environment == where.environment)
    made = list(connection.execute(select(tasks.c.task_id).where(*named).limit(FEW_TASKS + 1)).scalars())
    if len(made) > FEW_TASKS:
        return None
    of_them = select(groups.c.sequence).where(groups.c.task_id.in_(made)).limit(LOOKED_AT + 1)
    found = list(connection.execute(of_them).scalars()) if made else []
    if len(found) > LOOKED_AT:
        return None
    conditions = (groups.c.sequence.in_(found), *build_conditions(where))
    return Window(conditions, len(found), None)


def _bound_times(connection: Connection, where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    """By the place of the times among the sequences, since the newest by sequence are wanted."""
    by_time = select(groups.c.sequence).limit(1)
    if where.since is not None:
        earlier = groups.c.created_at < to_micros(where.since) - _SKEW
        last = by_time.where(earlier).order_by(groups.c.created_at.desc(), groups.c.sequence.desc())
        if (place := connection.execute(last).scalar()) is not None:
            yield groups.c.sequence > place
    if where.until is not None:
        later = groups.c.created_at > to_micros(where.until) + _SKEW
        first = by_time.where(later).order_by(groups.c.created_at, groups.c.sequence)
        if (place := connection.execute(first).scalar()) is not None:
            yield groups.c.sequence < place
    yield from _match_times(where)


def _match_times(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    hidden = func.coalesce(groups.c.created_at, literal_column("0"))  # from indexes: they would have to be sorted
    if where.since is not None:
        yield hidden >= to_micros(where.since)
    if where.until is not None:
        yield hidden < to_micros(where.until)


def build_conditions(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    """What an index finds."""
    outcome = "unscored" if where.reason is not None and where.outcome is None else where.outcome
    if where.task_id is not None:
        yield groups.c.task_id == where.task_id
    are_few = outcome in {"pending", "unscored"} or where.purpose == "eval"
    yield from match_place(where.environment, where.run, are_few=are_few)
    # These repeat the partial indexes' own terms, without which SQLite does not see that they apply.
    if outcome in {"pending", "unscored"}:
        yield groups.c.outcome == outcome
        yield groups.c.outcome != literal_column("'scored'")
    if where.purpose == "eval":
        yield groups.c.purpose == where.purpose
        yield groups.c.purpose == literal_column("'eval'")
    for column, patterns in ((groups.c.environment, where.environments), (groups.c.run, where.runs)):
        if patterns:
            yield match_names(column, patterns)
    if where.before is not None:
        yield groups.c.sequence < where.before
    if where.after is not None:
        yield groups.c.sequence > where.after


def match_place(environment: str | None, run: str | None, *, are_few: bool) -> Iterator[ColumnElement[bool]]:
    """Groups of an environment and a run, if named. Where few are wanted, which have an index of their own, SQLite must
    not prefer the one of all groups of both: it knows no figures of the store."""
    if run is not None:
        yield groups.c.run == run
    if environment is not None:
        hidden = func.coalesce(groups.c.environment, literal_column("''"))
        yield (hidden if are_few and run is not None else groups.c.environment) == environment


def build_narrowings(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    """What is looked for group by group."""
    if where.outcome == "scored":
        yield groups.c.outcome == "scored"
    if where.purpose == "train":
        yield groups.c.purpose == "train"
    yield from _match_ranges(where)
    yield from _match_times(where)
    if where.label is not None:
        yield _is_any(tasks.c.task_id == groups.c.task_id, tasks.c.label == encode_json(where.label))
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
    told = encode_json(word)
    return or_(
        *(column.contains(f"{begin}{told}{end}", autoescape=True) for begin in "[," for end in ",]"),
    )
