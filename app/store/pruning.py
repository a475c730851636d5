"""Which groups may go, and how a few of them go."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, case, delete, exists, func, or_, select

from app.domain.retention import GroupsOfRun, KeptGroups, Pruned, PrunePlan, PruneRule
from app.domain.rollups import CountedGroup
from app.store.database import Database
from app.store.group_sizes import estimate_group_bytes, measure_groups
from app.store.health_tables import run_anchors
from app.store.judge_tables import judgements
from app.store.label_tables import label_leases, labels
from app.store.part_tables import parts
from app.store.retention_tables import pruned_groups
from app.store.rollup_sums import Addend, build_addend, load_labels
from app.store.rollups import load_readable_groups, load_readings
from app.store.rows import insert_rows, match_names, to_micros
from app.store.sealed_rollups import lock_sealed, seal
from app.store.tables import groups, prompts, rescores, rollouts, scores, scorings, tasks

_ALL: Final = (groups.c.run, groups.c.environment, groups.c.purpose)


@dataclass(frozen=True)
class PreparedBatch:
    """Groups as they were when their sums were made, before the transaction that removes them."""

    rule: PruneRule
    after: int | None
    addends: dict[int, Addend]
    states: dict[int, tuple[Any, ...]]
    bytes: dict[int, int]


def _choose_groups(rule: PruneRule) -> list[ColumnElement[bool]]:
    """Those that the rule is about, whether they are kept or not."""
    chosen: list[ColumnElement[bool]] = []
    if rule.before is not None:
        chosen.append(groups.c.created_at < to_micros(rule.before))
    if rule.runs:
        chosen.append(match_names(groups.c.run, rule.runs))
    return chosen


def _build_reason(rule: PruneRule) -> ColumnElement[str | None]:
    """Why a group stays; null if it may go."""
    is_labelled = or_(
        exists().where(labels.c.group_id == groups.c.group_id),
        exists().where(label_leases.c.group_id == groups.c.group_id, label_leases.c.state == "live"),
    )
    return case(
        (groups.c.purpose.not_in(rule.purposes), "purpose"),
        (groups.c.outcome == "pending", "pending"),
        (groups.c.counted != 1, "uncounted"),
        (is_labelled, "labelled"),
        (
            exists().where(run_anchors.c.group_sequence == groups.c.sequence, run_anchors.c.run == groups.c.run),
            "anchor",
        ),
        (exists().where(parts.c.group_id == groups.c.group_id), "in_pieces"),
        else_=None,
    )


def plan_pruning(connection: Connection, rule: PruneRule) -> PrunePlan:
    reason = _build_reason(rule).label("reason")
    marked = select(*_ALL, groups.c.size, groups.c.sequence, reason).where(*_choose_groups(rule)).subquery()
    place = (marked.c.run, marked.c.environment, marked.c.purpose)
    counts = (
        select(*place, marked.c.reason, func.count(), func.sum(marked.c.size), func.max(marked.c.sequence))
        .group_by(*place, marked.c.reason)
        .order_by(*place)
    )
    removable: list[GroupsOfRun] = []
    kept: dict[Any, int] = {}
    last = 0
    for run, environment, purpose, because, count, size, newest in connection.execute(counts):
        if because is not None:
            kept[because] = kept.get(because, 0) + count
            continue
        last = max(last, newest)
        mean = estimate_group_bytes(connection, run, environment, purpose)
        removable.append(
            GroupsOfRun(
                run=run,
                environment=environment,
                purpose=purpose,
                groups=count,
                rollouts=size,
                bytes=round(count * mean),
            )
        )
    return PrunePlan(
        rule=rule,
        removable=tuple(removable),
        kept=tuple(KeptGroups(because=because, groups=count) for because, count in sorted(kept.items())),
        last=last,
        excess_bytes=None if rule.keep_bytes is None else max(0, _estimate_all(connection) - rule.keep_bytes),
    )


def load_run_sizes(connection: Connection, *where: ColumnElement[bool]) -> list[GroupsOfRun]:
    """All stored groups by run, with their bytes as some of them have."""
    counts = select(*_ALL, func.count(), func.sum(groups.c.size)).where(*where).group_by(*_ALL).order_by(*_ALL)
    return [
        GroupsOfRun(
            run=run,
            environment=environment,
            purpose=purpose,
            groups=count,
            rollouts=size,
            bytes=round(count * estimate_group_bytes(connection, run, environment, purpose)),
        )
        for run, environment, purpose, count, size in connection.execute(counts)
    ]


def _estimate_all(connection: Connection) -> int:
    return sum(each.bytes for each in load_run_sizes(connection))


def prepare_batch(connection: Connection, plan: PrunePlan, after: int, limit: int) -> PreparedBatch:
    """Reads alone, since all that takes long is done here. A group that cannot be read is left where it is."""
    wanted = (
        select(groups.c.sequence, groups.c.group_id)
        .where(*_choose_groups(plan.rule), _build_reason(plan.rule).is_(None))
        .where(groups.c.sequence > after, groups.c.sequence <= plan.last)
        .order_by(groups.c.sequence)
        .limit(limit)
    )
    sequences = {group_id: sequence for sequence, group_id in connection.execute(wanted)}
    found, _ = load_readable_groups(connection, sequences)
    readings = load_readings(connection, sequences.values())
    names = load_labels(connection, {group.task_id for group in found})
    addends: dict[int, Addend] = {}
    for group in found:
        sequence = sequences[group.group_id]
        addends[sequence] = build_addend(CountedGroup(group, sequence, *readings.get(sequence, (0, 0, 0))), names)
    full = len(sequences) == limit
    return PreparedBatch(
        rule=plan.rule,
        after=max(sequences.values()) if full else None,
        addends=addends,
        states=_load_states(connection, list(addends)),
        bytes=measure_groups(connection, list(addends)),
    )


def _load_states(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[Any, ...]]:
    """What differs once a group was scored further. The scores of a rollout never change."""
    made = select(func.max(judgements.c.sequence)).where(judgements.c.group_sequence == groups.c.sequence)
    state = (groups.c.outcome, groups.c.scored, groups.c.unscored, groups.c.head, made.scalar_subquery())
    found = select(groups.c.sequence, *state).where(groups.c.sequence.in_(sequences))
    return {sequence: tuple(rest) for sequence, *rest in connection.execute(found)}


def remove_batch(connection: Connection, database: Database, batch: PreparedBatch) -> Pruned:
    """Call in one transaction. What may no longer go stays, and so does what has changed."""
    if not batch.addends:
        return Pruned()
    lock_sealed(connection)
    held = (
        select(groups.c.sequence, groups.c.group_id, groups.c.size)
        .where(groups.c.sequence.in_(batch.addends))
        .order_by(groups.c.sequence)
        .with_for_update(skip_locked=True)
    )
    rows = {sequence: (group_id, size) for sequence, group_id, size in connection.execute(held)}
    may_go = select(groups.c.sequence).where(
        and_(*_choose_groups(batch.rule), _build_reason(batch.rule).is_(None)), groups.c.sequence.in_(rows)
    )
    free = set(connection.execute(may_go).scalars())
    states = _load_states(connection, free)
    going = [sequence for sequence in sorted(free) if states[sequence] == batch.states[sequence]]
    if not going:
        return Pruned()
    seal(connection, [batch.addends[sequence] for sequence in going])
    stamp = database.read_clock()
    gone = [{"group_id": rows[sequence][0], "pruned_at": stamp} for sequence in going]
    insert_rows(connection, pruned_groups, gone)
    return Pruned(
        groups=len(going),
        rollouts=sum(rows[sequence][1] for sequence in going),
        prompts=_delete_groups(connection, going),
        bytes=sum(batch.bytes.get(sequence, 0) for sequence in going),
    )


def _delete_groups(connection: Connection, sequences: Sequence[int]) -> int:
    """Returns how many prompts went with them."""
    of_groups = judgements.c.group_sequence.in_(sequences)
    used = select(judgements.c.prompt_digest).where(of_groups, judgements.c.prompt_digest.is_not(None)).distinct()
    digests = sorted(connection.execute(used).scalars())
    rescored = select(scorings.c.sequence).where(scorings.c.group_sequence.in_(sequences))
    connection.execute(delete(rescores).where(rescores.c.scoring_sequence.in_(rescored)))
    connection.execute(delete(judgements).where(of_groups))
    for table in (scorings, scores, rollouts):
        connection.execute(delete(table).where(table.c.group_sequence.in_(sequences)))
    connection.execute(delete(groups).where(groups.c.sequence.in_(sequences)))
    if not digests:
        return 0
    unused = [~exists().where(table.c.prompt_digest == prompts.c.digest) for table in (judgements, tasks)]
    return connection.execute(delete(prompts).where(prompts.c.digest.in_(digests), *unused)).rowcount
