"""A few groups at a time are reduced."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select, update

from app.domain.judging import Judgement
from app.domain.keeping import KeptPart, ReducedBy, ReducedCompletion, ReducedReading, digest_text, reduce_completion
from app.domain.retention import Reduced, ReducePlan
from app.store.group_texts import complete_words, find_indexed, forget_words, load_indexed_words
from app.store.group_words import Words
from app.store.judge_tables import judgements
from app.store.packing import StoredText, measure_stored, pack_completion, pack_text, unpack_completion, unpack_text
from app.store.pruning import delete_unused_prompts, load_states
from app.store.reduced_parts import build_mask, list_parts
from app.store.reduction_plans import build_reduction_reason, choose_reducible
from app.store.rows import decode, decode_json, encode
from app.store.tables import groups, prompts, rollouts


@dataclass(frozen=True)
class _ReducedRow:
    """New values of a rollout, by position, or of a judgement, by sequence."""

    place: int
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
class PreparedReduction:
    """Groups as they will be, made before the transaction that writes them."""

    plan: ReducePlan
    after: int | None
    seen: int
    groups: tuple[_PreparedGroup, ...]
    words: Words
    """That the index of texts has of them."""


def prepare_reduction(
    connection: Connection, plan: ReducePlan, after: int, limit: int, at: datetime
) -> PreparedReduction:
    """Reads alone, since all that takes long is done here. A group that cannot be read is left as it is."""
    wanted = (
        select(groups.c.sequence, groups.c.group_id, groups.c.run, groups.c.reduced)
        .where(*choose_reducible(plan.rule, plan.of_runs), build_reduction_reason().is_(None))
        .where(groups.c.sequence > after, groups.c.sequence <= plan.last)
        .order_by(groups.c.sequence)
        .limit(limit)
    )
    rows = connection.execute(wanted).all()
    missing: dict[int, frozenset[KeptPart]] = {}
    own: set[int] = set()
    for sequence, group_id, run, reduced in rows:
        if parts := plan.find_rule(run).choose_parts(group_id) - list_parts(reduced):
            missing[sequence] = parts
        if run in plan.of_runs:
            own.add(sequence)
    states = load_states(connection, list(missing))
    found = []
    for sequence, parts in missing.items():
        by: ReducedBy = "run" if sequence in own else "operator"
        try:
            found.append(_prepare_group(connection, sequence, parts, states[sequence], by, at))
        except ValueError:
            continue
    words = load_indexed_words(connection, [one.sequence for one in found])
    after_this = rows[-1].sequence if len(rows) == limit else None
    return PreparedReduction(plan, after_this, len(rows), tuple(found), words)


def _prepare_group(
    connection: Connection,
    sequence: int,
    parts: frozenset[KeptPart],
    state: tuple[Any, ...],
    by: ReducedBy,
    at: datetime,
) -> _PreparedGroup:
    said = select(rollouts.c.position, rollouts.c.completion, rollouts.c.packed, rollouts.c.reduced)
    members = []
    for position, body, packed, stored in connection.execute(said.where(rollouts.c.group_sequence == sequence)):
        before = None if stored is None else decode(ReducedCompletion, stored)
        completion, mark = reduce_completion(unpack_completion(body, packed), parts, before, by, at)
        if mark is not None and mark != before:
            new, beside = pack_completion(completion), encode(mark)
            freed = measure_stored(StoredText(body, packed)) - measure_stored(new) - len(beside)
            members.append(_ReducedRow(position, new, beside, freed))
    readings, asked = _prepare_readings(connection, sequence, by, at) if "judge_prompts" in parts else ((), {})
    return _PreparedGroup(sequence, build_mask(parts), state, tuple(members), readings, asked)


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
    readings, asked = [], {}
    for place, answer, packed, digest, body, packed_body in connection.execute(made):
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
        readings.append(_ReducedRow(place, new, beside, freed))
        if digest is not None:
            asked[digest] = measure_stored(StoredText(body, packed_body))
    return tuple(readings), asked


def reduce_batch(connection: Connection, batch: PreparedReduction) -> Reduced:
    """Call in one transaction. What may no longer be reduced stays as it is, and so does what has changed."""
    prepared = {one.sequence: one for one in batch.groups}
    if not prepared:
        return Reduced(seen=batch.seen)
    held = (
        select(groups.c.sequence)
        .where(groups.c.sequence.in_(prepared))
        .order_by(groups.c.sequence)
        .with_for_update(skip_locked=True)
    )
    locked = connection.execute(held).scalars().all()
    may_be = choose_reducible(batch.plan.rule, batch.plan.of_runs)
    free = select(groups.c.sequence).where(groups.c.sequence.in_(locked), *may_be, build_reduction_reason().is_(None))
    states = load_states(connection, connection.execute(free).scalars().all())
    indexed = find_indexed(connection, states)
    going = [prepared[sequence] for sequence in sorted(states) if states[sequence] == prepared[sequence].state]
    forget_words(connection, complete_words(connection, batch.words, indexed & {one.sequence for one in going}))
    _write_rollouts(connection, going)
    _write_readings(connection, going)
    by_mask: defaultdict[int, list[int]] = defaultdict(list)
    for one in going:
        by_mask[one.mask].append(one.sequence)
    for mask, sequences in by_mask.items():
        added = func.coalesce(groups.c.reduced, 0).bitwise_or(mask)
        connection.execute(update(groups).where(groups.c.sequence.in_(sequences)).values(reduced=added))
    return Reduced(
        seen=batch.seen,
        groups=len(going),
        rollouts=sum(len(one.rollouts) for one in going),
        prompts=delete_unused_prompts(connection, sorted({digest for one in going for digest in one.prompts})),
        bytes=sum(one.freed for one in going),
    )


def _write_rollouts(connection: Connection, going: Collection[_PreparedGroup]) -> None:
    rows = [
        {"of": one.sequence, "at": row.place, "said": row.body.text, "packs": row.body.packed, "mark": row.reduced}
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
        {"at": row.place, "said": row.body.text, "packs": row.body.packed, "mark": row.reduced}
        for one in going
        for row in one.judgements
    ]
    if rows:
        values: dict[str, Any] = {"answer": bindparam("said"), "packed": bindparam("packs")}
        values |= {"reduced": bindparam("mark"), "prompt_digest": None}
        connection.execute(update(judgements).where(judgements.c.sequence == bindparam("at")).values(values), rows)
