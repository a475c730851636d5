"""What pages and dashboards read: listings of groups, one group whole, and statistics, which are rollups that are
written with the groups."""

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, RowMapping, select

from app.domain.access import KeyBounds
from app.domain.groups import (
    CriterionMean,
    FlagCount,
    FoundGroups,
    GroupDetail,
    GroupFilter,
    GroupSummary,
    Scoring,
    StatisticsBreakdown,
    StatisticsRow,
    StoredReading,
    StoredScores,
)
from app.domain.judging import Judgement
from app.domain.keeping import ReducedReading
from app.domain.making import GroupMaking
from app.domain.rollups import (
    Rollup,
    RollupFilter,
    Series,
)
from app.domain.scores import Score
from app.store.database import StorePart, reads
from app.store.group_rows import CALIBRATED_FIELDS, decode_flags, decode_score, load_groups, parse_policy
from app.store.groups import load_scorings, require_unpruned
from app.store.rollups import count_uncounted, load_rollups, sample_rollups
from app.store.search import ALL_COLUMNS, Columns, GroupSearch, load_rows, search_groups
from app.store.statements import (
    decode,
    decode_json,
    filter_storable,
    from_micros,
    is_storable,
    unpack_text,
)
from app.store.tables import groups, judgements, prompts, rollouts, scorings, tasks
from app.store.tasks import load_tasks


@dataclass(frozen=True, slots=True)
class GroupOutline:
    """Of a group what is known without its task and its completions, which take longest to read."""

    sequence: int
    task_id: str
    scored: int
    """Completions with a score."""
    created_at: datetime


@dataclass(frozen=True)
class FoundOutlines:
    """As `FoundGroups`."""

    outlines: tuple[GroupOutline, ...]
    next_before: int | None
    looked_at: int


class GroupViews(StorePart):
    """Read models for pages and dashboards."""

    last_text_search = -math.inf
    """When this process last searched by what the index of texts has, as `time.monotonic`."""

    @reads
    def find_groups(self, connection: Connection, where: GroupFilter) -> FoundGroups:
        """Newest first, unless another order is asked for. Where a filter has no index, at most a number of the newest
        groups are looked at."""
        found = self._search(connection, where)
        return FoundGroups(
            groups=tuple(_summarise(connection, found.load_page())),
            next_before=found.next_before,
            looked_at=found.looked_at,
            matched=len(found.matches),
            not_indexed=found.not_indexed,
        )

    @reads
    def find_outlines(self, connection: Connection, where: GroupFilter) -> FoundOutlines:
        """What `find_groups` finds."""
        found = self._search(connection, where, _OUTLINE)
        outlines = (
            GroupOutline(row["sequence"], row["task_id"], row["scored"], from_micros(row["created_at"]))
            for row in found.load_page()
        )
        return FoundOutlines(tuple(outlines), found.next_before, found.looked_at)

    def _search(self, connection: Connection, where: GroupFilter, columns: Columns = ALL_COLUMNS) -> GroupSearch:
        if where.text is not None or where.flag is not None or where.model is not None:
            self.last_text_search = time.monotonic()
        return search_groups(connection, where, columns)

    @reads
    def load_summaries(self, connection: Connection, sequences: Sequence[int]) -> list[GroupSummary]:
        """Of those of these groups that are stored. A few hundred at most."""
        return _summarise(connection, load_rows(connection, sequences))

    @reads
    def get_group(self, connection: Connection, group_id: str) -> GroupDetail | None:
        """Gone when it was pruned."""
        if not is_storable(group_id):
            return None
        stored = load_groups(connection, groups.c.group_id == group_id)
        if not stored:
            require_unpruned(connection, [group_id])
            return None
        judged: defaultdict[str, list[Judgement]] = defaultdict(list)
        for reading in load_readings(connection, [group_id]).get(group_id, ()):
            judged[reading.scoring_id].append(reading.judgement)
        others = load_scorings(connection, groups.c.group_id == group_id)
        making = connection.execute(select(groups.c.making).where(groups.c.group_id == group_id)).scalar()
        return GroupDetail(
            group=stored[0],
            task=load_tasks(connection, [stored[0].task_id])[stored[0].task_id],
            judgements=tuple(judged[""]),
            scorings=tuple(one.model_copy(update={"judgements": tuple(judged[one.scoring_id])}) for one in others),
            making=None if making is None else decode(GroupMaking, making),
        )

    @reads
    def load_scores(self, connection: Connection, group_ids: Sequence[str]) -> Mapping[str, StoredScores]:
        """Of those of these groups that are stored. A few hundred at most."""
        requested = groups.c.group_id.in_(filter_storable(group_ids))
        members = (
            select(groups.c.group_id, rollouts.c.score, *(rollouts.c[name] for name in CALIBRATED_FIELDS))
            .join_from(rollouts, groups, rollouts.c.group_sequence == groups.c.sequence)
            .where(requested)
            .order_by(rollouts.c.group_sequence, rollouts.c.position)
        )
        scores_of: defaultdict[str, list[Score]] = defaultdict(list)
        for row in connection.execute(members).mappings():
            scores_of[row["group_id"]].append(decode_score(row))
        later: defaultdict[str, list[Scoring]] = defaultdict(list)
        for scoring in load_scorings(connection, requested):
            later[scoring.group_id].append(scoring)
        return {
            group_id: StoredScores(scores=tuple(scores), scorings=tuple(later[group_id]))
            for group_id, scores in scores_of.items()
        }

    async def get_statistics(
        self,
        environment: str | None,
        run: str | None,
        *,
        by: StatisticsBreakdown | None = None,
        judge: str | None = None,
        min_step: int | None = None,
        max_step: int | None = None,
        bounds: KeyBounds = KeyBounds(),  # noqa: B008  # frozen
    ) -> list[StatisticsRow]:
        """Statistics of training rollouts; `eval` is left out. `by` also breaks them down and leaves out groups without
        a label or judge. `judge` asks for groups that this judge scored, without `by` or with `by="judge"`. A least or
        most step leaves out groups without one."""
        series: Series = "step" if by is None and judge is None else by or "judge"
        where = RollupFilter(series, environment, run, label=judge, min_step=min_step, max_step=max_step)
        return [_build_statistics_row(rollup) for rollup in await self.list_rollups(where.within(bounds))]

    @reads
    def list_rollups(self, connection: Connection, where: RollupFilter) -> list[Rollup]:
        """What statistics are made of, ordered by step and by bucket."""
        return load_rollups(connection, where)

    @reads
    def sample_steps(self, connection: Connection, where: RollupFilter, most: int) -> list[Rollup]:
        """Of the runs that `where` names: rollups of about `most` steps of each, evenly spread."""
        return sample_rollups(connection, where, most)

    @reads
    def count_uncounted(self, connection: Connection) -> int:
        """How many stored groups no statistics include yet: those from before an upgrade, until they are counted."""
        return count_uncounted(connection)


# Listings and details of groups.


_OUTLINE: Final = (groups.c.sequence, groups.c.task_id, groups.c.scored, groups.c.created_at)


def _summarise(connection: Connection, rows: Sequence[RowMapping]) -> list[GroupSummary]:
    if not rows:
        return []
    named = select(tasks.c.task_id, tasks.c.title, tasks.c.label).where(
        tasks.c.task_id.in_({row["task_id"] for row in rows})
    )
    names = {task_id: (title, label) for task_id, title, label in connection.execute(named)}
    rewards: defaultdict[int, list[float | None]] = defaultdict(list)
    members = (
        select(rollouts.c.group_sequence, rollouts.c.reward)
        .where(rollouts.c.group_sequence.in_([row["sequence"] for row in rows]))
        .order_by(rollouts.c.group_sequence, rollouts.c.position)
    )
    for sequence, reward in connection.execute(members):
        rewards[sequence].append(reward)
    return [_parse_summary(row, *names[row["task_id"]], rewards[row["sequence"]]) for row in rows]


def _parse_summary(row: RowMapping, title: str, label: str | None, rewards: Sequence[float | None]) -> GroupSummary:
    plain = ("sequence", "group_id", "task_id", "environment", "run", "purpose", "outcome", "size", "mean", "std")
    return GroupSummary.model_validate(
        {name: row[name] for name in plain}
        | {
            "policy": parse_policy(row),
            "flags": decode_flags(row["flags"]),
            "rewards": tuple(rewards),
            "title": decode_json(title),
            "label": None if label is None else decode_json(label),
            "created_at": from_micros(row["created_at"]),
        }
    )


_ANSWERS: Final = (
    judgements.c.answer,
    judgements.c.packed,
    judgements.c.purpose,
    judgements.c.reduced,
    prompts.c.body,
    prompts.c.packed.label("packed_body"),
)


def load_readings(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[StoredReading]]:
    """By group, in the order in which they were stored."""
    made = (
        select(groups.c.group_id, scorings.c.scoring_id, *_ANSWERS)
        .join_from(judgements, groups, judgements.c.group_sequence == groups.c.sequence)
        .join(prompts, judgements.c.prompt_digest == prompts.c.digest, isouter=True)
        .join(scorings, judgements.c.scoring_sequence == scorings.c.sequence, isouter=True)
        .where(groups.c.group_id.in_(group_ids))
        .order_by(judgements.c.sequence)
    )
    readings: defaultdict[str, list[StoredReading]] = defaultdict(list)
    for row in connection.execute(made).mappings():
        reading = StoredReading(judgement=_parse_judgement(row), scoring_id=row["scoring_id"] or "")
        readings[row["group_id"]].append(reading)
    return readings


def _parse_judgement(row: RowMapping) -> Judgement:
    beside: dict[str, object] = {}
    if row["purpose"] is not None:
        beside["purpose"] = row["purpose"]
    if row["body"] is not None:
        beside["prompt"] = decode_json(unpack_text(row["body"], row["packed_body"]))
    if row["reduced"] is not None:
        beside["reduced"] = decode(ReducedReading, row["reduced"])
    return decode(Judgement, unpack_text(row["answer"], row["packed"])).model_copy(update=beside)


def _build_statistics_row(rollup: Rollup) -> StatisticsRow:
    key = rollup.key
    scored, unscored = rollup.count("scored"), rollup.count("unscored")
    criteria = rollup.add_up_criteria()
    return StatisticsRow(
        environment=key.environment,
        run=key.run,
        step=key.step,
        label=key.label if key.series == "label" else None,
        judge=key.label if key.series == "judge" else None,
        dataset=key.label if key.series == "dataset" else None,
        groups=rollup.count("groups"),
        low_signal=rollup.count("low_signal"),
        scored=scored,
        unscored=unscored,
        pending=rollup.count("rollouts") - scored - unscored,
        mean_reward=rollup.mean("reward"),
        mean_absolute=rollup.mean("absolute"),
        lagged=rollup.count("lag"),
        mean_lag=rollup.mean("lag"),
        stale=rollup.count("stale"),
        mean_calibrated=rollup.mean("calibrated"),
        calibrated=rollup.count("calibrated"),
        criteria=tuple(
            CriterionMean(name=name, mean=criteria.mean(name) or 0.0, count=criteria.count(name))
            for name in criteria.measures
        ),
        mean_std=rollup.mean("spread"),
        gated=rollup.count("gated"),
        mean_length=rollup.mean("length"),
        flags=_list_flags(rollup, "flag:"),
        group_flags=_list_flags(rollup, "group_flag:"),
        mean_judge_calls=rollup.mean("judge_calls"),
        mean_judge_usd=rollup.mean("judge_usd"),
        priced=rollup.count("judge_usd"),
    )


def _list_flags(rollup: Rollup, prefix: str) -> tuple[FlagCount, ...]:
    names = rollup.list_names(prefix)
    return tuple(FlagCount(name=name.removeprefix(prefix), count=rollup.count(name)) for name in names)
