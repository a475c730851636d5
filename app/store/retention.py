"""Retention: groups are pruned, groups lose some of their parts, and leftovers go; all of it a few at a time.

Pruning removes a group with all that hangs on it. What it added to the statistics is sealed first, so that counting all
groups again does not lose it, and its id stays, so that whoever asks for it is told and it is never scored again.
Reduction puts digests in the place of a group's token ids, log-probabilities and judges' prompts, and keeps its scores
and texts, so that the index of texts has nothing to do with it.

Both begin with a plan: which groups, and about what that frees. Then each batch is prepared by a reader, since that
takes long, and written in one short transaction, since a write holds up all others. A group that was scored further,
reduced or put under protection in between stays as it is: the writer chooses again, and compares each group's state
with what it was when the batch was prepared.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    LargeBinary,
    Table,
    and_,
    bindparam,
    case,
    cast,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)

from app.domain.judging import Judgement
from app.domain.keeping import (
    KEPT_PARTS,
    KeepLevel,
    KeptPart,
    ReducedBy,
    ReducedCompletion,
    ReducedReading,
    digest_text,
    list_dropped,
    reduce_completion,
)
from app.domain.retention import (
    GroupsOfRun,
    KeptGroups,
    LeftoverKind,
    Pruned,
    PrunePlan,
    PruneRule,
    Reduced,
    ReducePlan,
    ReduceRule,
)
from app.domain.rollups import CountedGroup
from app.domain.runs import Purpose
from app.domain.tasks import Completion
from app.domain.values import canonical_json
from app.store.database import Database, StorePart, reads
from app.store.group_rows import build_mask, list_parts
from app.store.group_texts import Words, complete_words, find_indexed, load_indexed_words, remove_words
from app.store.leases import IS_LIVE, IS_OF_TASK
from app.store.rollups import Addend, build_addend, load_labels, load_readable_groups, load_readings, lock_sealed, seal
from app.store.runs import decode_level
from app.store.statements import (
    StoredText,
    decode,
    decode_json,
    encode,
    encode_json,
    from_micros,
    insert_rows,
    match_names,
    measure_stored,
    pack_completion,
    pack_text,
    to_micros,
    unpack_completion,
    unpack_text,
)
from app.store.tables import (
    group_texts,
    groups,
    hosted_steps,
    idempotency_keys,
    judge_cache,
    judgements,
    leases,
    parts,
    player_lines,
    prompts,
    pruned_groups,
    rescores,
    rollouts,
    runs,
    scorings,
    streams,
    tasks,
)


@dataclass(frozen=True)
class PrunedBatch:
    """`after` is where the next batch begins; None at the end."""

    pruned: Pruned
    after: int | None


@dataclass(frozen=True)
class ReducedBatch:
    reduced: Reduced
    after: int | None


@dataclass(frozen=True)
class SweptBatch:
    removed: int
    after: str | None


class RetentionStore(StorePart):
    """Each batch is complete by itself, so that pruning may stop after any and begin anew."""

    @reads
    def plan(self, connection: Connection, rule: PruneRule) -> PrunePlan:
        """What would go, and what is kept although it is old enough."""
        reason = _build_reason(rule.purposes).label("reason")
        marked = select(*_GROUP_KIND, groups.c.size, groups.c.sequence, reason).where(*_choose_groups(rule)).subquery()
        columns = [marked.c[column.name] for column in _GROUP_KIND]
        counts = (
            select(*columns, marked.c.reason, func.count(), func.sum(marked.c.size), func.max(marked.c.sequence))
            .group_by(*columns, marked.c.reason)
            .order_by(*columns)
        )
        removable: list[GroupsOfRun] = []
        staying: dict[Any, int] = {}
        last = 0
        for *kind, because, count, size, newest in connection.execute(counts):
            if because is not None:
                staying[because] = staying.get(because, 0) + count
                continue
            last = max(last, newest)
            removable.append(_size_groups(connection, _GroupKind(*kind), count, size))
        return PrunePlan(
            rule=rule,
            removable=tuple(_add_up_runs(removable)),
            kept=tuple(KeptGroups(because=because, groups=count) for because, count in sorted(staying.items())),
            last=last,
            excess_bytes=None if rule.keep_bytes is None else max(0, _estimate_all(connection) - rule.keep_bytes),
        )

    async def prune_groups(self, plan: PrunePlan, after: int, limit: int) -> PrunedBatch:
        """Removes the oldest groups of the plan behind `after`, with their judgements and prompts that nothing else
        uses. What they had added to the statistics stays. Groups that have changed meanwhile stay too."""
        batch = await self.database.read(lambda connection: prepare_batch(connection, plan, after, limit))
        pruned = await self.database.write(lambda connection: remove_batch(connection, self.database, batch), "groups")
        return PrunedBatch(pruned, batch.after)

    async def sweep(self, rule: PruneRule, kind: LeftoverKind, after: str, limit: int) -> SweptBatch:
        """Removes leftovers behind the key `after`. A reader looks for them, since it may have to pass by many that
        stay."""
        table = _TABLES[kind]
        key = next(iter(table.primary_key))
        old = _choose_leftovers(rule, table)
        oldest = select(key).where(*old, key > after).order_by(key).limit(limit)
        keys = await self.database.read(lambda connection: connection.execute(oldest).scalars().all())
        removed = 0
        if keys:
            removal = delete(table).where(key.in_(keys), *old)
            removed = await self.database.write(lambda connection: connection.execute(removal).rowcount, kind)
        return SweptBatch(removed, str(keys[-1]) if len(keys) == limit else None)

    @reads
    def has_keep_rules(self, connection: Connection) -> bool:
        """Whether a run says what stays of its groups."""
        return bool(_load_levels(connection))

    @reads
    def plan_reduction(self, connection: Connection, rule: ReduceRule) -> ReducePlan:
        """Which groups would lose which parts. A run's own choice goes before the rule's."""
        return plan_reduction(connection, rule)

    async def reduce_groups(self, plan: ReducePlan, after: int, limit: int) -> ReducedBatch:
        """Reduces the oldest groups of the plan behind `after`. Groups that have changed meanwhile stay as they are."""
        at = from_micros(self.database.read_clock())
        batch = await self.database.read(lambda connection: prepare_reduction(connection, plan, after, limit, at))
        reduced = await self.database.write(lambda connection: reduce_batch(connection, batch), "groups")
        return ReducedBatch(reduced, batch.after)


@dataclass(frozen=True)
class _GroupKind:
    """Groups that are alike in size: of one run, environment and purpose, with the same parts missing."""

    run: str | None
    environment: str
    purpose: str
    reduced: int | None


_GROUP_KIND: Final = (groups.c.run, groups.c.environment, groups.c.purpose, groups.c.reduced)


def _match_kind(kind: _GroupKind) -> list[ColumnElement[bool]]:
    return [
        groups.c.run.is_not_distinct_from(kind.run),
        groups.c.environment == kind.environment,
        groups.c.purpose == kind.purpose,
        groups.c.reduced.is_not_distinct_from(kind.reduced),
    ]


def _choose_groups(rule: PruneRule | ReduceRule) -> list[ColumnElement[bool]]:
    """Those that the rule is about, whether they are kept or not."""
    chosen: list[ColumnElement[bool]] = []
    if rule.before is not None:
        chosen.append(groups.c.created_at < to_micros(rule.before))
    if rule.runs:
        chosen.append(match_names(groups.c.run, rule.runs))
    return chosen


_KEPT: Final[dict[str, ColumnElement[bool]]] = {}


def keep_groups(reason: str, condition: ColumnElement[bool]) -> None:
    """What a feature needs stays. Of several reasons for one group, plans give the one that was named first."""
    _KEPT[reason] = condition


def _build_reason(purposes: Sequence[Purpose]) -> ColumnElement[str | None]:
    """Why a group stays; null if it may go."""
    return case(
        (groups.c.purpose.not_in(purposes), "purpose"),
        (groups.c.outcome == "pending", "pending"),
        (groups.c.counted != 1, "uncounted"),
        *((condition, reason) for reason, condition in _KEPT.items()),
        (exists().where(parts.c.group_id == groups.c.group_id), "in_pieces"),
        else_=None,
    )


def load_states(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[Any, ...]]:
    """What differs once a group was scored further or reduced. The scores of a rollout never change."""
    made = select(func.max(judgements.c.sequence)).where(judgements.c.group_sequence == groups.c.sequence)
    state = (
        groups.c.outcome,
        groups.c.scored,
        groups.c.unscored,
        groups.c.flags,
        groups.c.reduced,
        made.scalar_subquery(),
    )
    rows = select(groups.c.sequence, *state).where(groups.c.sequence.in_(sequences))
    return {sequence: tuple(rest) for sequence, *rest in connection.execute(rows)}


# Pruning: groups go, and what they added to the statistics stays.


@dataclass(frozen=True)
class _PreparedBatch:
    """Groups as they were when their sums were made, before the transaction that removes them."""

    rule: PruneRule
    after: int | None
    addends: dict[int, Addend]
    states: dict[int, tuple[Any, ...]]
    bytes: dict[int, int]
    words: Words
    """That the index of texts has of them."""


def prepare_batch(connection: Connection, plan: PrunePlan, after: int, limit: int) -> _PreparedBatch:
    """Reads alone, since all that takes long is done here. A group that cannot be read is left where it is."""
    chosen = (
        select(groups.c.sequence, groups.c.group_id)
        .where(*_choose_groups(plan.rule), _build_reason(plan.rule.purposes).is_(None))
        .where(groups.c.sequence > after, groups.c.sequence <= plan.last)
        .order_by(groups.c.sequence)
        .limit(limit)
    )
    sequences = {group_id: sequence for sequence, group_id in connection.execute(chosen)}
    readable, _ = load_readable_groups(connection, sequences)
    readings = load_readings(connection, sequences.values())
    names = load_labels(connection, {group.task_id for group in readable})
    addends: dict[int, Addend] = {}
    for group in readable:
        sequence = sequences[group.group_id]
        addends[sequence] = build_addend(CountedGroup(group, sequence, *readings.get(sequence, ())), names)
    full = len(sequences) == limit
    return _PreparedBatch(
        rule=plan.rule,
        after=max(sequences.values()) if full else None,
        addends=addends,
        states=load_states(connection, list(addends)),
        bytes=_measure_groups(connection, list(addends)),
        words=load_indexed_words(connection, list(addends)),
    )


def remove_batch(connection: Connection, database: Database, batch: _PreparedBatch) -> Pruned:
    """Call in one transaction. What may no longer go stays, and so does what has changed."""
    if not batch.addends:
        return Pruned()
    lock_sealed(connection)
    # A group that is locked is being scored or finished: it stays, and a later run comes to it.
    held = (
        select(groups.c.sequence, groups.c.group_id, groups.c.size)
        .where(groups.c.sequence.in_(batch.addends))
        .order_by(groups.c.sequence)
        .with_for_update(skip_locked=True)
    )
    rows = {sequence: (group_id, size) for sequence, group_id, size in connection.execute(held)}
    may_go = select(groups.c.sequence).where(
        and_(*_choose_groups(batch.rule), _build_reason(batch.rule.purposes).is_(None)), groups.c.sequence.in_(rows)
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
        bytes=sum(batch.bytes.get(sequence, 0) for sequence in going),
    ) + _delete_groups(connection, going)


def _delete_groups(connection: Connection, sequences: Sequence[int]) -> Pruned:
    """Returns what went with them that others might have used too."""
    of_groups = judgements.c.group_sequence.in_(sequences)
    used = select(judgements.c.prompt_digest).where(of_groups, judgements.c.prompt_digest.is_not(None)).distinct()
    digests = sorted(connection.execute(used).scalars())
    said = select(player_lines.c.key).join(judgements, judgements.c.reading == player_lines.c.key).where(of_groups)
    lines = sorted(set(connection.execute(said).scalars()))
    rescored = select(scorings.c.sequence).where(scorings.c.group_sequence.in_(sequences))
    connection.execute(delete(rescores).where(rescores.c.scoring_sequence.in_(rescored)))
    connection.execute(delete(judgements).where(of_groups))
    connection.execute(delete(group_texts).where(group_texts.c.sequence.in_(sequences)))
    for table in (scorings, rollouts):
        connection.execute(delete(table).where(table.c.group_sequence.in_(sequences)))
    connection.execute(delete(groups).where(groups.c.sequence.in_(sequences)))
    unused = delete(player_lines).where(player_lines.c.key.in_(lines), *_LINE_IS_UNUSED)
    return Pruned(
        prompts=_delete_unused_prompts(connection, digests),
        player_lines=connection.execute(unused).rowcount if lines else 0,
    )


def _delete_unused_prompts(connection: Connection, digests: Collection[str]) -> int:
    """Those of them that no judgement and no task uses."""
    if not digests:
        return 0
    unused = [~exists().where(table.c.prompt_digest == prompts.c.digest) for table in (judgements, tasks)]
    return connection.execute(delete(prompts).where(prompts.c.digest.in_(digests), *unused)).rowcount


# Reduction, the plan: which groups can lose parts, and what that would free.


def _load_levels(connection: Connection) -> dict[str, KeepLevel]:
    """By run, of those that have one."""
    rules = select(runs.c.name, runs.c.keep).where(runs.c.keep.is_not(None)).order_by(runs.c.name)
    return {name: decode_level(body) for name, body in connection.execute(rules)}


def _build_reduction_reason() -> ColumnElement[str | None]:
    return case((groups.c.outcome == "unscored", "unscored"), else_=_build_reason(("train",)))


def _choose_reducible(rule: ReduceRule, of_runs: Mapping[str, KeepLevel]) -> list[ColumnElement[bool]]:
    """Those that have parts which do not stay."""
    general: ColumnElement[int] = literal(build_mask(list_dropped(rule.keep)))
    own = [(groups.c.run == name, literal(build_mask(list_dropped(keep)))) for name, keep in of_runs.items()]
    reducible = case(*own, else_=general) if own else general
    return [*_choose_groups(rule), func.coalesce(groups.c.reduced, 0).bitwise_and(reducible) != reducible]


def plan_reduction(connection: Connection, rule: ReduceRule) -> ReducePlan:
    of_runs = _load_levels(connection)
    plan = ReducePlan(rule=rule, of_runs=of_runs)
    if not any(list_dropped(level) for level in (rule.keep, *of_runs.values())):
        return plan
    chosen = _choose_reducible(rule, of_runs)
    reason = _build_reduction_reason().label("reason")
    marked = select(*_GROUP_KIND, groups.c.size, groups.c.sequence, reason).where(*chosen).subquery()
    columns = [marked.c[column.name] for column in _GROUP_KIND]
    counts = (
        select(*columns, marked.c.reason, func.count(), func.sum(marked.c.size), func.max(marked.c.sequence))
        .group_by(*columns, marked.c.reason)
        .order_by(*columns)
    )
    reducible, staying, parts = [], Counter[Any](), Counter[KeptPart]()
    last = 0
    may_be = [*chosen, _build_reduction_reason().is_(None)]
    for *names, because, count, size, newest in connection.execute(counts).all():
        if because is not None:
            staying[because] += count
            continue
        own = _GroupKind(*names)
        last = max(last, newest)
        drawn = _draw_groups(connection, own, *may_be)
        going = list_dropped(plan.find_level(own.run)) - list_parts(own.reduced)
        sums = {part: round(count * mean) for part, mean in _estimate_freed(connection, drawn, going).items()}
        parts.update(sums)
        reducible.append(
            GroupsOfRun.model_validate(
                {"run": own.run, "environment": own.environment, "purpose": own.purpose, "bytes": sum(sums.values())}
                | {"groups": count, "rollouts": size}
            )
        )
    return plan.model_copy(
        update={
            "reducible": tuple(_add_up_runs(reducible)),
            "parts": {part: parts[part] for part in KEPT_PARTS if parts[part]},
            "kept": tuple(KeptGroups(because=because, groups=staying[because]) for because in sorted(staying)),
            "last": last,
        }
    )


_PROMPT: Final = (prompts.c.body, prompts.c.packed.label("packed_body"))


def _estimate_freed(
    connection: Connection, drawn: Collection[int], going: frozenset[KeptPart]
) -> dict[KeptPart, float]:
    """The mean of some groups, by part. A prompt that others share counts for each."""
    sums: Counter[KeptPart] = Counter()
    completions = select(rollouts.c.completion, rollouts.c.packed)
    for body, packed in connection.execute(completions.where(rollouts.c.group_sequence.in_(drawn))):
        completion = unpack_completion(body, packed)
        sizes = _measure_parts(completion) if packed is None else _measure_packed_parts(completion)
        sums.update({part: size for part, size in sizes.items() if part in going})
    prompted = (
        select(judgements.c.answer, judgements.c.packed, *_PROMPT)
        .join_from(judgements, prompts, judgements.c.prompt_digest == prompts.c.digest, isouter=True)
        .where(judgements.c.group_sequence.in_(drawn))
    )
    for answer, packed, prompt, packed_prompt in connection.execute(prompted) if "judge_prompts" in going else ():
        raw = pack_text(encode_json(decode(Judgement, unpack_text(answer, packed)).raw))
        size = measure_stored(StoredText(prompt or "", packed_prompt)) + measure_stored(raw)
        sums["judge_prompts"] += max(0, size - _DIGEST_BYTES)
    return {part: sums[part] / len(drawn) for part in sums}


_DIGEST_BYTES: Final = 110
"""About what stands in the place of a part."""


def _measure_parts(completion: Completion) -> dict[KeptPart, int]:
    sizes: dict[KeptPart, int] = {
        "tokens": len(canonical_json(list(completion.token_ids or ()))),
        "logprobs": len(canonical_json(list(completion.logprobs or ()))),
    }
    return {part: max(0, size - _DIGEST_BYTES) for part, size in sizes.items()}


def _measure_packed_parts(completion: Completion) -> dict[KeptPart, int]:
    """Each packed alone, which is about what it takes among the others."""
    bare = Completion(text="", token_ids=completion.token_ids)
    ids = measure_stored(pack_completion(bare))
    both = measure_stored(pack_completion(bare.model_copy(update={"logprobs": completion.logprobs})))
    sizes: dict[KeptPart, int] = {"tokens": ids, "logprobs": both - ids}
    return {part: max(0, size - _DIGEST_BYTES) for part, size in sizes.items()}


# Reduction, a batch: digests take the place of parts.


@dataclass(frozen=True)
class _ReducedRow:
    """New values of a rollout, by position, or of a judgement, by sequence."""

    key: int
    body: StoredText
    reduced: str
    freed: int


@dataclass(frozen=True)
class _PreparedGroup:
    sequence: int
    mask: int
    state: tuple[Any, ...]
    rollouts: tuple[_ReducedRow, ...]
    judgements: tuple[_ReducedRow, ...]
    prompts: Mapping[str, int]
    """The bytes of its prompts by digest."""

    @property
    def freed(self) -> int:
        return sum(one.freed for one in (*self.rollouts, *self.judgements)) + sum(self.prompts.values())


@dataclass(frozen=True)
class _PreparedReduction:
    """Groups as they will be, made before the transaction that writes them."""

    plan: ReducePlan
    after: int | None
    groups: tuple[_PreparedGroup, ...]


def prepare_reduction(
    connection: Connection, plan: ReducePlan, after: int, limit: int, at: datetime
) -> _PreparedReduction:
    """Reads alone, since all that takes long is done here. A group that cannot be read is left as it is."""
    chosen = (
        select(groups.c.sequence, groups.c.run, groups.c.reduced)
        .where(*_choose_reducible(plan.rule, plan.of_runs), _build_reduction_reason().is_(None))
        .where(groups.c.sequence > after, groups.c.sequence <= plan.last)
        .order_by(groups.c.sequence)
        .limit(limit)
    )
    rows = connection.execute(chosen).all()
    missing: dict[int, frozenset[KeptPart]] = {}
    own: set[int] = set()
    for sequence, run, reduced in rows:
        missing[sequence] = list_dropped(plan.find_level(run)) - list_parts(reduced)
        if run in plan.of_runs:
            own.add(sequence)
    states = load_states(connection, list(missing))
    prepared = []
    for sequence, going in missing.items():
        by: ReducedBy = "run" if sequence in own else "operator"
        try:
            prepared.append(_prepare_group(connection, sequence, going, states[sequence], by, at))
        except ValueError:
            continue
    return _PreparedReduction(plan, rows[-1].sequence if len(rows) == limit else None, tuple(prepared))


def _prepare_group(
    connection: Connection,
    sequence: int,
    parts: frozenset[KeptPart],
    state: tuple[Any, ...],
    by: ReducedBy,
    at: datetime,
) -> _PreparedGroup:
    completions = select(rollouts.c.position, rollouts.c.completion, rollouts.c.packed, rollouts.c.reduced)
    members = []
    for position, body, packed, stored in connection.execute(completions.where(rollouts.c.group_sequence == sequence)):
        before = None if stored is None else decode(ReducedCompletion, stored)
        completion, mark = reduce_completion(unpack_completion(body, packed), parts, before, by, at)
        if mark is not None and mark != before:
            new, beside = pack_completion(completion), encode(mark)
            freed = measure_stored(StoredText(body, packed)) - measure_stored(new) - len(beside)
            members.append(_ReducedRow(position, new, beside, freed))
    readings, prompt_bytes = _prepare_readings(connection, sequence, by, at) if "judge_prompts" in parts else ((), {})
    return _PreparedGroup(sequence, build_mask(parts), state, tuple(members), readings, prompt_bytes)


_READING_COLUMNS: Final = (
    judgements.c.sequence,
    judgements.c.answer,
    judgements.c.packed,
    judgements.c.prompt_digest,
    prompts.c.body,
    prompts.c.packed.label("packed_body"),
)


def _prepare_readings(
    connection: Connection, sequence: int, by: ReducedBy, at: datetime
) -> tuple[tuple[_ReducedRow, ...], dict[str, int]]:
    made = (
        select(*_READING_COLUMNS)
        .join_from(judgements, prompts, judgements.c.prompt_digest == prompts.c.digest, isouter=True)
        .where(judgements.c.group_sequence == sequence)
    )
    readings, prompt_bytes = [], {}
    for judgement_sequence, answer, packed, digest, body, packed_body in connection.execute(made):
        judgement = decode(Judgement, unpack_text(answer, packed))
        if body is None and not judgement.raw:
            continue
        mark = ReducedReading(
            prompt=None if body is None else digest_text(str(decode_json(unpack_text(body, packed_body)))),
            raw=digest_text(judgement.raw) if judgement.raw else None,
            by=by,
            at=at,
        )
        new, beside = pack_text(encode(judgement.model_copy(update={"raw": ""}))), encode(mark)
        freed = measure_stored(StoredText(answer, packed)) - measure_stored(new) - len(beside)
        readings.append(_ReducedRow(judgement_sequence, new, beside, freed))
        if digest is not None:
            prompt_bytes[digest] = measure_stored(StoredText(body, packed_body))
    return tuple(readings), prompt_bytes


def reduce_batch(connection: Connection, batch: _PreparedReduction) -> Reduced:
    """Call in one transaction. What may no longer be reduced stays as it is, and so does what has changed."""
    prepared = {one.sequence: one for one in batch.groups}
    if not prepared:
        return Reduced()
    held = (
        select(groups.c.sequence)
        .where(groups.c.sequence.in_(prepared))
        .order_by(groups.c.sequence)
        .with_for_update(skip_locked=True)
    )
    locked = connection.execute(held).scalars().all()
    may_be = _choose_reducible(batch.plan.rule, batch.plan.of_runs)
    free = select(groups.c.sequence).where(groups.c.sequence.in_(locked), *may_be, _build_reduction_reason().is_(None))
    states = load_states(connection, connection.execute(free).scalars().all())
    going = [prepared[sequence] for sequence in sorted(states) if states[sequence] == prepared[sequence].state]
    _write_rollouts(connection, going)
    _write_readings(connection, going)
    by_mask: defaultdict[int, list[int]] = defaultdict(list)
    for one in going:
        by_mask[one.mask].append(one.sequence)
    for mask, sequences in by_mask.items():
        added = func.coalesce(groups.c.reduced, 0).bitwise_or(mask)
        connection.execute(update(groups).where(groups.c.sequence.in_(sequences)).values(reduced=added))
    return Reduced(
        groups=len(going),
        rollouts=sum(len(one.rollouts) for one in going),
        prompts=_delete_unused_prompts(connection, sorted({digest for one in going for digest in one.prompts})),
        bytes=sum(one.freed for one in going),
    )


def _write_rollouts(connection: Connection, going: Collection[_PreparedGroup]) -> None:
    rows = [
        {"of": one.sequence, "at": row.key, "said": row.body.text, "packs": row.body.packed, "mark": row.reduced}
        for one in going
        for row in one.rollouts
    ]
    if rows:
        here = (rollouts.c.group_sequence == bindparam("of"), rollouts.c.position == bindparam("at"))
        values: dict[str, Any] = {
            "completion": bindparam("said"),
            "packed": bindparam("packs"),
            "reduced": bindparam("mark"),
        }
        connection.execute(update(rollouts).where(*here).values(values), rows)


def _write_readings(connection: Connection, going: Collection[_PreparedGroup]) -> None:
    rows = [
        {"at": row.key, "said": row.body.text, "packs": row.body.packed, "mark": row.reduced}
        for one in going
        for row in one.judgements
    ]
    if rows:
        values: dict[str, Any] = {"answer": bindparam("said"), "packed": bindparam("packs")}
        values |= {"reduced": bindparam("mark"), "prompt_digest": None}
        connection.execute(update(judgements).where(judgements.c.sequence == bindparam("at")).values(values), rows)


# Leftovers, and whose turn it is to remove them.


def _is_leased(table: Table) -> ColumnElement[bool]:
    """Whether the task of a row of this table has an open lease."""
    return exists().where(
        tasks.c.task_id == table.c.task_id,
        IS_LIVE,
        IS_OF_TASK,
        # The index of live leases begins with the run.
        leases.c.run.in_(select(streams.c.run)),
    )


_LINE_IS_UNUSED: Final = (
    # A stored group has the answers that its lines took, so that it can be scored anew.
    ~exists().where(judgements.c.reading == player_lines.c.key),
    ~exists().where(groups.c.task_id == player_lines.c.task_id, groups.c.outcome != "scored"),
    ~_is_leased(player_lines),
)
"""No stored group, no group that is to be scored, and no open lease can need the line of a player."""
_STEP_IS_UNUSED: Final = (~exists().where(groups.c.task_id == hosted_steps.c.task_id), ~_is_leased(hosted_steps))
"""Neither a group nor a lease of its task is there, so that nobody can step or score its episode."""


_TABLES: Final[dict[LeftoverKind, Table]] = {
    "leases": leases,
    "idempotency_keys": idempotency_keys,
    "judge_cache": judge_cache,
    "player_lines": player_lines,
    "hosted_steps": hosted_steps,
}


def _choose_leftovers(rule: PruneRule, table: Table) -> list[ColumnElement[bool]]:
    old = [table.c.created_at < to_micros(rule.before)] if rule.before is not None else []
    if table is hosted_steps:
        return [*old, *_STEP_IS_UNUSED]
    if table is player_lines:
        return [*old, *_LINE_IS_UNUSED]
    if table is not leases:
        return old
    # The lease of a stored group stays: who sends the group again must find it.
    is_answered = leases.c.group_id.is_not(None)
    is_pruned = exists().where(pruned_groups.c.group_id == leases.c.group_id)
    ended = or_(leases.c.state == "superseded", (leases.c.state == "done") & (is_pruned | ~is_answered))
    return [*old, ended, *([match_names(leases.c.run, rule.runs)] if rule.runs else [])]


# Sizes: how many bytes groups take, measured for some of each kind.

ROW_BYTES: Final = 120
"""What a row costs beside its long texts: short columns, the row's head, its places in indexes."""
_SAMPLES: Final = 24
"""Groups of a kind that are measured for all of it: half of them its oldest, half its newest."""


def load_run_sizes(connection: Connection, *where: ColumnElement[bool]) -> list[GroupsOfRun]:
    """All stored groups by run, with their bytes as some of them have."""
    counts = (
        select(*_GROUP_KIND, func.count(), func.sum(groups.c.size))
        .where(*where)
        .group_by(*_GROUP_KIND)
        .order_by(*_GROUP_KIND)
    )
    return _add_up_runs(
        _size_groups(connection, _GroupKind(*kind), count, size) for *kind, count, size in connection.execute(counts)
    )


def _estimate_all(connection: Connection) -> int:
    return sum(each.bytes for each in load_run_sizes(connection))


def _size_groups(connection: Connection, kind: _GroupKind, count: int, size: int) -> GroupsOfRun:
    return GroupsOfRun.model_validate(
        {"run": kind.run, "environment": kind.environment, "purpose": kind.purpose, "groups": count, "rollouts": size}
        | {"bytes": round(count * _estimate_group_bytes(connection, kind))}
    )


def _add_up_runs(kinds: Iterable[GroupsOfRun]) -> list[GroupsOfRun]:
    """Whatever is missing of them, groups of one run, environment and purpose count together."""
    runs: dict[tuple[str | None, str, str], GroupsOfRun] = {}
    for each in kinds:
        key = (each.run, each.environment, each.purpose)
        runs[key] = each if key not in runs else runs[key] + each
    return list(runs.values())


def _estimate_group_bytes(connection: Connection, kind: _GroupKind) -> float:
    """The mean of some groups of the kind; 0 where there are none."""
    sizes = _measure_groups(connection, _draw_groups(connection, kind)).values()
    return sum(sizes) / len(sizes) if sizes else 0.0


def _draw_groups(connection: Connection, kind: _GroupKind, *where: ColumnElement[bool]) -> list[int]:
    """The sequences of some groups of a kind."""
    here = (*_match_kind(kind), *where)
    sequences: set[int] = set()
    for order in (groups.c.sequence, groups.c.sequence.desc()):
        some = select(groups.c.sequence).where(*here).order_by(order).limit(_SAMPLES // 2)
        sequences.update(connection.execute(some).scalars())
    return sorted(sequences)


def _measure_groups(connection: Connection, sequences: Sequence[int]) -> dict[int, int]:
    """The bytes of each of these groups. A prompt that others share counts for each."""
    sizes: dict[int, int] = defaultdict(int)
    for statement in _build_queries(connection, sequences):
        for sequence, rows, texts in connection.execute(statement):
            sizes[sequence] += int(rows) * ROW_BYTES + int(texts or 0)
    return dict(sizes)


def _build_queries(connection: Connection, sequences: Sequence[int]) -> list[Executable]:
    def count(table: Table, column: ColumnElement[int], *texts: str) -> Executable:
        lengths = sum((measure_bytes(connection, table.c[name]) for name in texts), start=literal(0))
        return select(column, func.count(), func.sum(lengths)).where(column.in_(sequences)).group_by(column)

    rescored: Executable = (
        select(
            scorings.c.group_sequence,
            func.count(),
            func.sum(measure_bytes(connection, rescores.c.score)),
        )
        .join_from(scorings, rescores, rescores.c.scoring_sequence == scorings.c.sequence)
        .where(scorings.c.group_sequence.in_(sequences))
        .group_by(scorings.c.group_sequence)
    )
    asked = (
        select(judgements.c.group_sequence, judgements.c.prompt_digest)
        .where(judgements.c.group_sequence.in_(sequences), judgements.c.prompt_digest.is_not(None))
        .distinct()
        .subquery()
    )
    prompted: Executable = (
        select(asked.c.group_sequence, func.count(), func.sum(_measure_prompt(connection)))
        .join_from(asked, prompts, prompts.c.digest == asked.c.prompt_digest)
        .group_by(asked.c.group_sequence)
    )
    return [
        count(groups, groups.c.sequence, "model", "lease_id", "sender", "flags", "making"),
        count(rollouts, rollouts.c.group_sequence, "completion", "packed", "score", "reduced"),
        count(judgements, judgements.c.group_sequence, "answer", "packed", "reduced"),
        rescored,
        prompted,
    ]


def _measure_prompt(connection: Connection) -> ColumnElement[int]:
    return measure_bytes(connection, prompts.c.body) + measure_bytes(connection, prompts.c.packed)


def measure_bytes(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[int]:
    if connection.dialect.name == "postgresql":
        return func.coalesce(func.octet_length(column), 0)
    return func.coalesce(func.length(cast(column, LargeBinary)), 0)
