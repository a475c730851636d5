"""Which groups may go, and how a few of them go."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, case, delete, exists, func, or_, select

from app.domain.retention import GroupsOfRun, KeptGroups, Pruned, PrunePlan, PruneRule, ReduceRule
from app.domain.rollups import CountedGroup
from app.domain.runs import Purpose
from app.store.database import Database
from app.store.group_sizes import GroupKind, estimate_group_bytes, measure_groups
from app.store.group_texts import complete_words, find_indexed, load_indexed_words
from app.store.group_words import Words, remove_words
from app.store.health_tables import run_anchors
from app.store.inserts import insert_rows
from app.store.judge_tables import judgements
from app.store.label_tables import label_leases, labels
from app.store.part_tables import parts
from app.store.retention_tables import pruned_groups
from app.store.rollup_sums import Addend, build_addend, load_labels
from app.store.rollups import load_readable_groups, load_readings
from app.store.rows import match_names, to_micros
from app.store.sealed_rollups import lock_sealed, seal
from app.store.tables import groups, prompts, rescores, rollouts, scores, scorings, tasks
from app.store.text_tables import group_texts

GROUP_KIND: Final = (groups.c.run, groups.c.environment, groups.c.purpose, groups.c.reduced)


@dataclass(frozen=True)
class PreparedBatch:
    """Groups as they were when their sums were made, before the transaction that removes them."""

    rule: PruneRule
    after: int | None
    addends: dict[int, Addend]
    states: dict[int, tuple[Any, ...]]
    bytes: dict[int, int]
    words: Words
    """That the index of texts has of them."""


def choose_groups(rule: PruneRule | ReduceRule) -> list[ColumnElement[bool]]:
    """Those that the rule is about, whether they are kept or not."""
    chosen: list[ColumnElement[bool]] = []
    if rule.before is not None:
        chosen.append(groups.c.created_at < to_micros(rule.before))
    if rule.runs:
        chosen.append(match_names(groups.c.run, rule.runs))
    return chosen


def build_reason(purposes: Sequence[Purpose]) -> ColumnElement[str | None]:
    """Why a group stays; null if it may go."""
    is_labelled = or_(
        exists().where(labels.c.group_id == groups.c.group_id),
        exists().where(label_leases.c.group_id == groups.c.group_id, label_leases.c.state == "live"),
    )
    return case(
        (groups.c.purpose.not_in(purposes), "purpose"),
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
    reason = build_reason(rule.purposes).label("reason")
    marked = select(*GROUP_KIND, groups.c.size, groups.c.sequence, reason).where(*choose_groups(rule)).subquery()
    place = (marked.c.run, marked.c.environment, marked.c.purpose, marked.c.reduced)
    counts = (
        select(*place, marked.c.reason, func.count(), func.sum(marked.c.size), func.max(marked.c.sequence))
        .group_by(*place, marked.c.reason)
        .order_by(*place)
    )
    removable: list[GroupsOfRun] = []
    kept: dict[Any, int] = {}
    last = 0
    for *kind, because, count, size, newest in connection.execute(counts):
        if because is not None:
            kept[because] = kept.get(because, 0) + count
            continue
        last = max(last, newest)
        removable.append(_size_groups(connection, GroupKind(*kind), count, size))
    return PrunePlan(
        rule=rule,
        removable=tuple(add_up_runs(removable)),
        kept=tuple(KeptGroups(because=because, groups=count) for because, count in sorted(kept.items())),
        last=last,
        excess_bytes=None if rule.keep_bytes is None else max(0, _estimate_all(connection) - rule.keep_bytes),
    )


def load_run_sizes(connection: Connection, *where: ColumnElement[bool]) -> list[GroupsOfRun]:
    """All stored groups by run, with their bytes as some of them have."""
    counts = (
        select(*GROUP_KIND, func.count(), func.sum(groups.c.size))
        .where(*where)
        .group_by(*GROUP_KIND)
        .order_by(*GROUP_KIND)
    )
    return add_up_runs(
        _size_groups(connection, GroupKind(*kind), count, size) for *kind, count, size in connection.execute(counts)
    )


def _size_groups(connection: Connection, kind: GroupKind, count: int, size: int) -> GroupsOfRun:
    return GroupsOfRun.model_validate(
        {"run": kind.run, "environment": kind.environment, "purpose": kind.purpose, "groups": count, "rollouts": size}
        | {"bytes": round(count * estimate_group_bytes(connection, kind))}
    )


def add_up_runs(kinds: Iterable[GroupsOfRun]) -> list[GroupsOfRun]:
    """Whatever is missing of them, groups of one run, environment and purpose count together."""
    found: dict[tuple[str | None, str, str], GroupsOfRun] = {}
    for each in kinds:
        key = (each.run, each.environment, each.purpose)
        found[key] = each if key not in found else found[key] + each
    return list(found.values())


def _estimate_all(connection: Connection) -> int:
    return sum(each.bytes for each in load_run_sizes(connection))


def prepare_batch(connection: Connection, plan: PrunePlan, after: int, limit: int) -> PreparedBatch:
    """Reads alone, since all that takes long is done here. A group that cannot be read is left where it is."""
    wanted = (
        select(groups.c.sequence, groups.c.group_id)
        .where(*choose_groups(plan.rule), build_reason(plan.rule.purposes).is_(None))
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
        addends[sequence] = build_addend(CountedGroup(group, sequence, *readings.get(sequence, ())), names)
    full = len(sequences) == limit
    return PreparedBatch(
        rule=plan.rule,
        after=max(sequences.values()) if full else None,
        addends=addends,
        states=load_states(connection, list(addends)),
        bytes=measure_groups(connection, list(addends)),
        words=load_indexed_words(connection, list(addends)),
    )


def load_states(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[Any, ...]]:
    """What differs once a group was scored further or reduced. The scores of a rollout never change."""
    made = select(func.max(judgements.c.sequence)).where(judgements.c.group_sequence == groups.c.sequence)
    state = (
        groups.c.outcome,
        groups.c.scored,
        groups.c.unscored,
        groups.c.head,
        groups.c.reduced,
        made.scalar_subquery(),
    )
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
        and_(*choose_groups(batch.rule), build_reason(batch.rule.purposes).is_(None)), groups.c.sequence.in_(rows)
    )
    free = set(connection.execute(may_go).scalars())
    states = load_states(connection, free)
    indexed = find_indexed(connection, free)
    going = [sequence for sequence in sorted(free) if states[sequence] == batch.states[sequence]]
    if not going:
        return Pruned()
    seal(connection, [batch.addends[sequence] for sequence in going])
    remove_words(connection, complete_words(connection, batch.words, indexed.intersection(going)))
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
    connection.execute(delete(group_texts).where(group_texts.c.sequence.in_(sequences)))
    for table in (scorings, scores, rollouts):
        connection.execute(delete(table).where(table.c.group_sequence.in_(sequences)))
    connection.execute(delete(groups).where(groups.c.sequence.in_(sequences)))
    return delete_unused_prompts(connection, digests)


def delete_unused_prompts(connection: Connection, digests: Collection[str]) -> int:
    """Those of them that no judgement and no task uses."""
    if not digests:
        return 0
    unused = [~exists().where(table.c.prompt_digest == prompts.c.digest) for table in (judgements, tasks)]
    return connection.execute(delete(prompts).where(prompts.c.digest.in_(digests), *unused)).rowcount
