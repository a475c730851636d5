"""Read models for pages and dashboards: group listings, group details, reward statistics."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, RowMapping, func, literal_column, select

from app.domain.exports import StoredReading
from app.domain.groups import CriterionMean, GroupDetail, GroupFilter, GroupSummary, StatisticsRow
from app.domain.judging import Judgement, JudgingPurpose
from app.ports.store import GroupViews
from app.store.database import Database
from app.store.group_rows import GroupHead, load_groups
from app.store.judge_tables import judgements
from app.store.rows import decode, decode_json, filter_storable, from_micros
from app.store.scoring_store import load_scorings
from app.store.tables import groups, prompts, rollouts, scores, scorings, tasks
from app.store.task_store import load_tasks


class SqlGroupViews(GroupViews):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_groups(self, where: GroupFilter) -> list[GroupSummary]:
        """Group summaries, newest first."""
        return await self._database.read(lambda connection: _load_groups(connection, where))

    async def get_group(self, group_id: str) -> GroupDetail | None:
        if not filter_storable([group_id]):
            return None
        return await self._database.read(lambda connection: _load_group(connection, group_id))

    async def get_statistics(
        self, environment: str | None, run: str | None, *, by_label: bool = False
    ) -> list[StatisticsRow]:
        return await self._database.read(lambda connection: _load_statistics(connection, environment, run, by_label))


def build_conditions(where: GroupFilter) -> Iterator[ColumnElement[bool]]:
    for name in ("environment", "run", "task_id", "outcome", "purpose"):
        value: str | None = getattr(where, name)
        if value is not None:
            yield groups.c[name] == value
    # These repeat the partial indexes' own terms, without which SQLite does not see that they apply.
    if where.outcome in {"pending", "unscored"}:
        yield groups.c.outcome != literal_column("'scored'")
    if where.purpose == "eval":
        yield groups.c.purpose == literal_column("'eval'")
    if where.before is not None:
        yield groups.c.sequence < where.before


def _load_groups(connection: Connection, where: GroupFilter) -> list[GroupSummary]:
    newest = select(groups).where(*build_conditions(where)).order_by(groups.c.sequence.desc()).limit(where.limit)
    rows = connection.execute(newest).mappings().all()
    if not rows:
        return []
    titles = select(tasks.c.task_id, tasks.c.title).where(tasks.c.task_id.in_({row["task_id"] for row in rows}))
    title_of = {task_id: str(decode_json(title)) for task_id, title in connection.execute(titles)}
    rewards: defaultdict[int, list[float | None]] = defaultdict(list)
    members = (
        select(rollouts.c.group_sequence, rollouts.c.reward)
        .where(rollouts.c.group_sequence.in_([row["sequence"] for row in rows]))
        .order_by(rollouts.c.group_sequence, rollouts.c.position)
    )
    for sequence, reward in connection.execute(members):
        rewards[sequence].append(reward)
    return [_parse_summary(row, title_of[row["task_id"]], rewards[row["sequence"]]) for row in rows]


def _parse_summary(row: RowMapping, title: str, rewards: Sequence[float | None]) -> GroupSummary:
    head = decode(GroupHead, row["head"])
    plain = ("sequence", "group_id", "task_id", "environment", "run", "purpose", "outcome", "size", "mean", "std")
    return GroupSummary.model_validate(
        {name: row[name] for name in plain}
        | {
            "policy": head.policy,
            "flags": head.flags,
            "rewards": tuple(rewards),
            "title": title,
            "created_at": from_micros(row["created_at"]),
        }
    )


def _load_group(connection: Connection, group_id: str) -> GroupDetail | None:
    found = load_groups(connection, groups.c.group_id == group_id)
    if not found:
        return None
    judged: defaultdict[str, list[Judgement]] = defaultdict(list)
    for reading in load_readings(connection, [group_id]).get(group_id, ()):
        judged[reading.scoring_id].append(reading.judgement)
    others = load_scorings(connection, groups.c.group_id == group_id)
    return GroupDetail(
        group=found[0],
        task=load_tasks(connection, [found[0].task_id])[found[0].task_id],
        judgements=tuple(judged[""]),
        scorings=tuple(one.model_copy(update={"judgements": tuple(judged[one.scoring_id])}) for one in others),
    )


def load_readings(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[StoredReading]]:
    """By group, in the order in which they were stored."""
    made = (
        select(groups.c.group_id, judgements.c.answer, judgements.c.purpose, prompts.c.body, scorings.c.scoring_id)
        .join_from(judgements, groups, judgements.c.group_sequence == groups.c.sequence)
        .join(prompts, judgements.c.prompt_digest == prompts.c.digest, isouter=True)
        .join(scorings, judgements.c.scoring_sequence == scorings.c.sequence, isouter=True)
        .where(groups.c.group_id.in_(group_ids))
        .order_by(judgements.c.sequence)
    )
    found: defaultdict[str, list[StoredReading]] = defaultdict(list)
    for group_id, answer, purpose, prompt, scoring_id in connection.execute(made):
        judgement = _parse_judgement(answer, purpose, prompt)
        found[group_id].append(StoredReading(judgement=judgement, scoring_id=scoring_id or ""))
    return found


def _parse_judgement(answer: str, purpose: JudgingPurpose | None, prompt: str | None) -> Judgement:
    judgement = decode(Judgement, answer)
    if purpose is not None:
        judgement = judgement.model_copy(update={"purpose": purpose})
    return judgement if prompt is None else judgement.model_copy(update={"prompt": decode_json(prompt)})


def _load_statistics(
    connection: Connection, environment: str | None, run: str | None, by_label: bool
) -> list[StatisticsRow]:
    source: FromClause = groups
    key = [groups.c.environment, groups.c.run, groups.c.step]
    wanted: list[ColumnElement[bool]] = [groups.c.purpose == "train"]
    if environment is not None:
        wanted.append(groups.c.environment == environment)
    if run is not None:
        wanted.append(groups.c.run == run)
    if by_label:
        source = groups.join(tasks, tasks.c.task_id == groups.c.task_id)
        key.append(tasks.c.label)
        wanted.append(tasks.c.label.is_not(None))
    criteria = _load_criteria(connection, source, key, wanted)
    totals = (
        select(*key, func.count().label("groups"), *(func.sum(groups.c[name]).label(name) for name in _SUMMED_COLUMNS))
        .select_from(source)
        .where(*wanted)
        .group_by(*key)
        .order_by(*(column.nulls_first() for column in key))
    )
    return [
        _parse_statistics_row(row, criteria[tuple(row[column.name] for column in key)])
        for row in connection.execute(totals).mappings()
    ]


def _load_criteria(
    connection: Connection, source: FromClause, key: Sequence[ColumnElement[Any]], wanted: Sequence[ColumnElement[bool]]
) -> Mapping[tuple[object, ...], list[CriterionMean]]:
    """Criterion means, grouped by `key`."""
    means = (
        select(*key, scores.c.name.label("criterion"), func.avg(scores.c.value), func.count(scores.c.value))
        .select_from(source.join(scores, scores.c.group_sequence == groups.c.sequence))
        .where(*wanted, scores.c.value.is_not(None))
        .group_by(*key, scores.c.name)
        .order_by(func.min(scores.c.ordinal), scores.c.name)
    )
    criteria: defaultdict[tuple[object, ...], list[CriterionMean]] = defaultdict(list)
    for *place, name, mean, count in connection.execute(means):
        criteria[tuple(place)].append(CriterionMean(name=name, mean=mean, count=count))
    return criteria


_CALIBRATED_COLUMNS = ("calibrated_sum", "calibrated_count")
_SUMMED_COLUMNS = (
    "size",
    "scored",
    "unscored",
    "reward_sum",
    "absolute_sum",
    "absolute_count",
    "low_signal",
    *_CALIBRATED_COLUMNS,
)


def _parse_statistics_row(row: RowMapping, criteria: Sequence[CriterionMean]) -> StatisticsRow:
    label = row.get("label")
    return StatisticsRow(
        environment=row["environment"],
        run=row["run"],
        step=row["step"],
        label=None if label is None else str(decode_json(label)),
        groups=row["groups"],
        low_signal=row["low_signal"],
        scored=row["scored"],
        unscored=row["unscored"],
        pending=row["size"] - row["scored"] - row["unscored"],
        mean_reward=row["reward_sum"] / row["scored"] if row["scored"] else None,
        mean_absolute=row["absolute_sum"] / row["absolute_count"] if row["absolute_count"] else None,
        mean_calibrated=row["calibrated_sum"] / row["calibrated_count"] if row["calibrated_count"] else None,
        calibrated=row["calibrated_count"] or 0,
        criteria=tuple(criteria),
    )
