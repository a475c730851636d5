"""What pages and dashboards read: listings of groups, one group whole, statistics, and sums by scene.

Statistics come from rollups, which are written with the groups. There are thousands of scenes, too many for that, so
their sums are read from the groups when somebody asks: a task says its scene, and an index leads from there to groups.
Of a scene with many an even sample is read, so that curves reach over the whole run.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, RowMapping, Select, bindparam, case, func, literal_column, select

from app.domain.groups import (
    CriterionMean,
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
from app.domain.rollups import (
    LONGEST_NAME,
    NO_VALUES,
    MeasureMap,
    Rollup,
    RollupFilter,
    RollupKey,
    Series,
    Sums,
    build_sums,
    merge_measures,
)
from app.domain.scores import Score
from app.ports.store import FoundOutlines, GroupOutline, GroupViews, SceneSums
from app.store.database import Database
from app.store.group_rows import CALIBRATED_FIELDS, GroupHead, decode_score, load_groups
from app.store.groups import load_scorings, require_unpruned
from app.store.rollups import IN_STATISTICS, count_uncounted, load_rollups
from app.store.search import SECONDS, find_rows, load_rows
from app.store.statements import (
    PreparedStatement,
    decode,
    decode_json,
    encode_json,
    filter_storable,
    from_micros,
    is_among,
    is_storable,
    unpack_text,
)
from app.store.tables import groups, judgements, prompts, rollouts, scores, scorings, tasks
from app.store.tasks import load_tasks


class SqlGroupViews(GroupViews):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_groups(self, where: GroupFilter) -> FoundGroups:
        return await self._database.read(lambda connection: _find_groups(connection, where))

    async def find_outlines(self, where: GroupFilter) -> FoundOutlines:
        return await self._database.read(lambda connection: _find_outlines(connection, where))

    async def load_summaries(self, sequences: Sequence[int]) -> list[GroupSummary]:
        return await self._database.read(lambda connection: _summarise(connection, load_rows(connection, sequences)))

    async def get_group(self, group_id: str) -> GroupDetail | None:
        if not is_storable(group_id):
            return None
        return await self._database.read(lambda connection: _load_group(connection, group_id))

    async def load_scores(self, group_ids: Sequence[str]) -> Mapping[str, StoredScores]:
        return await self._database.read(lambda connection: _load_scores(connection, group_ids))

    async def get_statistics(
        self,
        environment: str | None,
        run: str | None,
        *,
        by: StatisticsBreakdown | None = None,
        judge: str | None = None,
    ) -> list[StatisticsRow]:
        series: Series = "step" if by is None and judge is None else by or "judge"
        where = RollupFilter(series, environment, run, label=judge)
        return [_build_statistics_row(rollup) for rollup in await self.list_rollups(where)]

    async def list_rollups(self, where: RollupFilter) -> list[Rollup]:
        return await self._database.read(lambda connection: load_rollups(connection, where))

    async def find_scenes(self, where: GroupFilter, most: int) -> list[str]:
        return await self._database.read(lambda connection: _find_scenes(connection, where, most))

    async def sum_scenes(self, where: GroupFilter, scenes: Sequence[str]) -> SceneSums:
        return await self._database.read(lambda connection: _sum_scenes(connection, where, scenes))

    async def sum_tasks_of_scenes(
        self, environment: str, runs: Sequence[str], label: str | None, scenes: Sequence[str]
    ) -> Mapping[str, Sums]:
        return await self._database.read(
            lambda connection: _sum_tasks_of_scenes(connection, environment, runs, label, scenes)
        )

    async def count_uncounted(self) -> int:
        return await self._database.read(count_uncounted)


# Listings and details of groups.


def _find_groups(connection: Connection, where: GroupFilter) -> FoundGroups:
    page = find_rows(connection, where)
    return FoundGroups(
        groups=tuple(_summarise(connection, page.rows)),
        next_before=page.next_before,
        looked_at=page.looked_at,
        matched=page.matched,
        not_indexed=page.not_indexed,
    )


_OUTLINE: Final = (groups.c.sequence, groups.c.task_id, groups.c.scored, groups.c.created_at)


def _find_outlines(connection: Connection, where: GroupFilter) -> FoundOutlines:
    page = find_rows(connection, where, _OUTLINE)
    outlines = (
        GroupOutline(row["sequence"], row["task_id"], row["scored"], from_micros(row["created_at"]))
        for row in page.rows
    )
    return FoundOutlines(tuple(outlines), page.next_before, page.looked_at)


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
    head = decode(GroupHead, row["head"])
    plain = ("sequence", "group_id", "task_id", "environment", "run", "purpose", "outcome", "size", "mean", "std")
    return GroupSummary.model_validate(
        {name: row[name] for name in plain}
        | {
            "policy": head.policy,
            "flags": head.flags,
            "rewards": tuple(rewards),
            "title": decode_json(title),
            "label": None if label is None else decode_json(label),
            "created_at": from_micros(row["created_at"]),
        }
    )


def _load_group(connection: Connection, group_id: str) -> GroupDetail | None:
    stored = load_groups(connection, groups.c.group_id == group_id)
    if not stored:
        require_unpruned(connection, [group_id])
        return None
    judged: defaultdict[str, list[Judgement]] = defaultdict(list)
    for reading in load_readings(connection, [group_id]).get(group_id, ()):
        judged[reading.scoring_id].append(reading.judgement)
    others = load_scorings(connection, groups.c.group_id == group_id)
    return GroupDetail(
        group=stored[0],
        task=load_tasks(connection, [stored[0].task_id])[stored[0].task_id],
        judgements=tuple(judged[""]),
        scorings=tuple(one.model_copy(update={"judgements": tuple(judged[one.scoring_id])}) for one in others),
    )


def _load_scores(connection: Connection, group_ids: Sequence[str]) -> dict[str, StoredScores]:
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
    )


# Sums by scene, of a sample of groups. Statistics of each step have no scenes: there are thousands.

_NEWEST_GROUPS: Final = 500
"""Of a run: its scenes are those of so many."""


def _find_scenes(connection: Connection, where: GroupFilter, most: int) -> list[str]:
    columns = (groups.c.sequence, groups.c.task_id, groups.c.purpose)
    rows = find_rows(connection, where.model_copy(update={"limit": _NEWEST_GROUPS}), columns).rows
    task_ids = [row["task_id"] for row in rows if row["purpose"] == "train"]
    scenes = select(tasks.c.task_id, tasks.c.scene).where(tasks.c.task_id.in_(set(task_ids)))
    names = {task_id: scene for task_id, scene in connection.execute(scenes) if scene is not None} if task_ids else {}
    counts = Counter(names[task_id] for task_id in task_ids if task_id in names)
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    return [str(decode_json(name)) for name in ordered[:most]]


LOOKED_UP_PER_READ: Final = 2
"""Groups and tasks that are looked up for each group that is read: some are of other runs."""
_DRAWN_PER_READ: Final = 1.1
"""Groups that are drawn at first for each that is read: mostly nearly all of them match."""


class _Head(NamedTuple):
    """Columns of a group."""

    sequence: int
    task_id: str
    environment: str
    step: int | None
    size: int
    scored: int
    unscored: int
    std: float | None
    reward_sum: float
    absolute_sum: float
    absolute_count: int
    low_signal: int
    lag: int | None


def _sum_scenes(connection: Connection, where: GroupFilter, scenes: Sequence[str]) -> SceneSums:
    run, most = where.run or "", max(1, where.limit // max(1, len(scenes)))
    looked_up = LOOKED_UP_PER_READ * most
    named = _name_tasks(connection, scenes, where.label, looked_up)
    first, last = (connection.execute(end, {"run": run}).scalar() or 0 for end in _ENDS)
    chosen: list[list[_Head]] = []
    sampled: list[str] = []
    for scene, task_ids in named.items():
        drawn, is_whole = _draw_groups(connection, where, task_ids, (first, last), most)
        chosen.append(_thin(drawn, most))
        if not is_whole or len(chosen[-1]) < len(drawn) or len(task_ids) == looked_up:
            sampled.append(scene)
    scene_of = {task_id: scene for scene, task_ids in named.items() for task_id in task_ids}
    read, is_all = _measure_groups(connection, chosen)
    parts: defaultdict[RollupKey, list[MeasureMap]] = defaultdict(list)
    for head, measures in read:
        key = RollupKey("step", head.environment, run, "train", head.step, scene_of[head.task_id])
        parts[key].append(measures)
    rollups = [Rollup(key, merge_measures(parts[key])) for key in sorted(parts, key=lambda key: key.place)]
    return SceneSums(tuple(rollups), tuple(sampled) if is_all else tuple(named))


_MOST_TASKS: Final = 2_000
"""Tasks of a character whose sums are read, for each run."""


def _sum_tasks_of_scenes(
    connection: Connection, environment: str, runs: Sequence[str], label: str | None, scenes: Sequence[str]
) -> dict[str, Sums]:
    named = _name_tasks(connection, scenes, label, max(1, _MOST_TASKS // max(1, len(scenes))))
    scene_of = {task_id: scene for scene, task_ids in named.items() for task_id in task_ids}
    sums: dict[str, Sums] = {}
    for run in runs:
        task_ids = sorted(scene_of)
        stored = IN_STATISTICS.find_task_sums.fetch(connection, run=run, environment=environment, given=task_ids)
        for task_id, own_sums in stored:
            scene, own = scene_of[task_id], json.loads(own_sums)
            before = sums.get(scene, NO_VALUES)
            sums[scene] = [before[0] + own[0], before[1] + own[1]]
    return sums


def _name_tasks(connection: Connection, scenes: Sequence[str], label: str | None, most: int) -> dict[str, list[str]]:
    """Of each scene that has any. Task ids are digests, so the first are a fair sample of many."""
    if not scenes:
        return {}
    number = func.row_number().over(partition_by=tasks.c.scene, order_by=tasks.c.task_id).label("place")
    of_scenes = tasks.c.scene.in_([encode_json(scene) for scene in scenes])
    narrowed = () if label is None else (tasks.c.label == encode_json(label),)
    ranked = select(tasks.c.scene, tasks.c.task_id, number).where(of_scenes, *narrowed).subquery("ranked")
    first = select(ranked.c.scene, ranked.c.task_id).where(ranked.c.place <= most)
    task_ids: defaultdict[str, list[str]] = defaultdict(list)
    for scene, task_id in connection.execute(first).all():
        task_ids[scene].append(task_id)
    return {scene: task_ids[encoded] for scene in scenes if (encoded := encode_json(scene)) in task_ids}


_ENDS: Final = [select(end(groups.c.sequence)).where(groups.c.run == bindparam("run")) for end in (func.min, func.max)]
"""Apart, or SQLite reads all between them."""


def _of_tasks(postgres: bool) -> tuple[Any, ...]:
    within = groups.c.sequence.between(bindparam("first"), bindparam("last"))
    return is_among(groups.c.task_id, "given", postgres), within


_PRIME: Final = 1_009
_SPREAD: Final = 7_919
"""The remainder of a sequence times a prime says whether it is drawn: an even part of all groups, whatever their
rhythm, and the same for everybody who asks."""
_COUNT: Final = PreparedStatement(lambda postgres: select(func.count()).select_from(groups).where(*_of_tasks(postgres)))
_DRAW: Final = PreparedStatement(
    lambda postgres: select(groups.c.sequence).where(
        *_of_tasks(postgres), groups.c.sequence * _SPREAD % _PRIME < bindparam("share")
    )
)
_SELECT_HEADS: Final = PreparedStatement(
    lambda postgres: (
        select(*(groups.c[name] for name in _Head._fields))
        .where(is_among(groups.c.sequence, "given", postgres))
        .where(func.coalesce(groups.c.run, literal_column("''")) == bindparam("run"), groups.c.purpose == "train")
        .order_by(groups.c.sequence)
    )
)


def _draw_groups(
    connection: Connection, where: GroupFilter, task_ids: list[str], span: tuple[int, int], most: int
) -> tuple[list[_Head], bool]:
    """Groups of these tasks that match, and whether they are all there are. Mostly all of these tasks are of the run
    alone, so no more of what is drawn is read at first than would do then."""
    bound: Mapping[str, Any] = {"given": task_ids, "first": span[0], "last": span[1]}
    ((total,),) = _COUNT.fetch(connection, **bound)
    share = -(-_PRIME * LOOKED_UP_PER_READ * most // total) if total > LOOKED_UP_PER_READ * most else _PRIME
    drawn = sorted(sequence for (sequence,) in _DRAW.fetch(connection, **bound, share=share))
    read = _thin(drawn, round(_DRAWN_PER_READ * most))
    heads = _load_heads(connection, where, read)
    if len(heads) < most and len(read) < len(drawn):
        heads = sorted([*heads, *_load_heads(connection, where, sorted({*drawn} - {*read}))])
        read = drawn
    return heads, total <= LOOKED_UP_PER_READ * most and len(read) == len(drawn)


def _load_heads(connection: Connection, where: GroupFilter, sequences: list[int]) -> list[_Head]:
    rows = _SELECT_HEADS.fetch(connection, given=sequences, run=where.run or "")
    return [head for head in map(_Head._make, rows) if where.environment in {None, head.environment}]


_T = TypeVar("_T")


def _thin(rows: Sequence[_T], most: int) -> list[_T]:
    """So many of them, evenly."""
    step = max(1.0, len(rows) / most)
    return [rows[int(number * step)] for number in range(min(most, len(rows)))]


_AT_ONCE: Final = 120


def _measure_groups(
    connection: Connection, chosen: Iterable[Sequence[_Head]]
) -> tuple[list[tuple[_Head, MeasureMap]], bool]:
    """In strides, so that what there is time for is an even sample; and whether that was all."""
    everything = sorted(head for heads in chosen for head in heads)
    strides = -(-len(everything) // _AT_ONCE)
    measured: list[tuple[_Head, MeasureMap]] = []
    end = time.monotonic() + SECONDS
    for first in range(strides):
        part = everything[first::strides]
        beside = _load_members(connection, [head.sequence for head in part])
        measured += [(head, _measure_head(head) | beside.get(head.sequence, {})) for head in part]
        if time.monotonic() > end:
            break
    return measured, len(measured) == len(everything)


def _measure_head(head: _Head) -> MeasureMap:
    measures: MeasureMap = {"groups": 1, "rollouts": head.size}
    counts = (("scored", head.scored), ("unscored", head.unscored), ("low_signal", head.low_signal))
    measures |= {name: count for name, count in counts if count}
    sums = (("reward", head.scored, head.reward_sum), ("absolute", head.absolute_count, head.absolute_sum))
    measures |= {name: build_sums(count, total) for name, count, total in sums if count}
    beside = (("spread", head.std), ("lag", head.lag))
    return measures | {name: build_sums(1, value) for name, value in beside if value is not None and value >= 0}


def _select_members(postgres: bool) -> Select[Any]:
    here = rollouts.c
    gated = func.sum(case((here.gate == 0.0, 1), else_=0)).label("gated")
    calibrated = func.count(here.calibrated).label("known"), func.sum(here.calibrated).label("total")
    return (
        select(here.group_sequence, gated, *calibrated)
        .where(is_among(here.group_sequence, "given", postgres), here.outcome == "scored")
        .group_by(here.group_sequence)
    )


def _select_criteria(postgres: bool) -> Select[Any]:
    here = scores.c
    values = func.count(here.value).label("known"), func.sum(here.value).label("total")
    return (
        select(here.group_sequence, here.ordinal, here.name, *values)
        .where(is_among(here.group_sequence, "given", postgres))
        .group_by(here.group_sequence, here.ordinal, here.name)
    )


_SELECT_MEMBERS: Final = PreparedStatement(_select_members)
_SELECT_CRITERIA: Final = PreparedStatement(_select_criteria)


def _load_members(connection: Connection, sequences: list[int]) -> dict[int, MeasureMap]:
    measures: defaultdict[int, MeasureMap] = defaultdict(dict)
    for sequence, gated, count, total in _SELECT_MEMBERS.fetch(connection, given=sequences):
        if gated:
            measures[sequence]["gated"] = int(gated)
        if count:
            measures[sequence]["calibrated"] = build_sums(count, total)
    for sequence, ordinal, name, count, total in _SELECT_CRITERIA.fetch(connection, given=sequences):
        if count:
            measures[sequence][f"criterion:{ordinal}:{name[:LONGEST_NAME]}"] = build_sums(count, total)
    return measures
