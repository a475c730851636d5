"""What groups are compared with one by one, since no index tells it."""

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json
from sqlalchemy import ColumnElement, and_, func, literal_column, null, or_, select

from app.domain.groups import GroupFilter
from app.domain.runs import Policy
from app.store.group_rows import GroupHead
from app.store.judge_tables import judgements
from app.store.rows import encode, encode_json
from app.store.tables import groups, rollouts, tasks


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
