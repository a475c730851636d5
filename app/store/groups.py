"""Groups as they are stored: added once, finished later; and new scorings beside them.

A group's id says what it answers, so a repeat finds the stored group and changes nothing. It is stored in one
transaction with all that follows from it: the lease that it answers is done, what was reserved for it is free, its
judgements are charged, and the statistics count it. Where a rollout has no score yet, a later call may bring one; a
score that is stored stays. Many callers' groups are written by the same statements.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import not_
from typing import Annotated, Final

from pydantic import Field
from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    bindparam,
    exists,
    func,
    literal_column,
    select,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from app.domain.errors import Gone, InvalidRequest, NotFound
from app.domain.groups import Group, Scoring
from app.domain.judging import Judgement, Mode, RubricLabel, combine_outcomes
from app.domain.making import GroupMaking
from app.domain.retention import describe_pruned
from app.domain.rollups import CountedGroup, count_readings
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.values import Frozen
from app.store.budgets import record_costs, release_demands
from app.store.database import BatchedCalls, Database, StorePart, reads, split_by_size, writes
from app.store.group_rows import (
    ALL_BITS,
    CALIBRATED_FIELDS,
    PART_BITS,
    GroupToStore,
    StoredPrompt,
    build_group_row,
    build_judgement_rows,
    build_rollout_rows,
    build_score_columns,
    build_sum_columns,
    decode_score,
    encode_flags,
    load_groups,
)
from app.store.group_texts import forget_words, load_indexed_words
from app.store.leases import IS_OF_TASK
from app.store.rollups import load_readings, note_group
from app.store.statements import (
    PreparedStatement,
    decode,
    encode,
    filter_storable,
    from_micros,
    insert_new_returning,
    insert_new_rows,
    insert_rows,
    insert_tuples,
    is_among,
    to_micros,
)
from app.store.tables import (
    groups,
    idempotency_keys,
    judgements,
    leases,
    parts,
    prompts,
    pruned_groups,
    rescores,
    rollouts,
    scorings,
    tasks,
)


@dataclass(frozen=True)
class IdempotencyKey:
    key: str
    body_digest: str


class GroupStore(StorePart):
    """Groups, each stored once and finished later. Writes are durable on return."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._known_ids = BatchedCalls(self._find_known_ids)

    @reads
    def find(self, connection: Connection, group_ids: Sequence[str]) -> dict[str, Group]:
        storable = filter_storable(group_ids)
        stored = load_groups(connection, groups.c.group_id.in_(storable)) if storable else ()
        return {group.group_id: group for group in stored}

    async def recall(self, group_ids: Sequence[str]) -> dict[str, Group | None]:
        """Those of these groups that are stored, or were once: None for a pruned one, which nobody may score again."""
        storable = filter_storable(group_ids)
        with self.database.open_operation("read", "GroupStore.recall"):
            stored_once = await self._known_ids.add(storable) if storable else []
        if not stored_once:
            return {}
        return await self.database.read(lambda connection: _recall_groups(connection, stored_once))

    async def add(self, groups: Sequence[GroupToStore], key: IdempotencyKey | None = None) -> list[Group]:
        """Stores all groups in one transaction. An existing group is returned unchanged. A live lease on the same run
        and task is completed; without one the group gets the flag `late`. NotFound when the task of a group is not
        stored, InvalidRequest when `key` was used with a different body, Gone when one of the groups was pruned."""
        packed = await _pack_long_texts(groups)
        if key is not None:
            return await self.database.write(
                lambda connection: add_groups(connection, self.database, packed, key), "groups"
            )
        if not groups:
            return []
        return await self.database.write_shared("GroupStore.add", self._add_all, packed, "groups")

    @reads
    def _find_known_ids(self, connection: Connection, calls: Sequence[Sequence[str]]) -> list[list[str]]:
        return _find_known_ids(connection, calls)

    def _add_all(self, connection: Connection, calls: Sequence[Sequence[GroupToStore]]) -> list[list[Group]]:
        return split_by_size(add_groups(connection, self.database, list(chain(*calls))), calls)

    async def finish(self, groups: Sequence[GroupToStore]) -> list[Group]:
        """Writes the scores of pending or unscored rollouts. Scored rollouts never change. NotFound when one of the
        groups was never added."""
        if not groups:
            return []
        packed = await _pack_long_texts(groups)
        return await self.database.write_shared("GroupStore.finish", self._finish_all, packed, "groups")

    def _finish_all(self, connection: Connection, calls: Sequence[Sequence[GroupToStore]]) -> list[list[Group]]:
        every = list(chain(*calls))
        # Two callers finish the same group: the second must see what the first wrote.
        if len({item.group.group_id for item in every}) < len(every):
            return [_finish_groups(connection, self.database, of_call) for of_call in calls]
        return split_by_size(_finish_groups(connection, self.database, every), calls)

    @writes("groups")
    def mask(self, connection: Connection, group_id: str) -> Group:
        """Flags a group that is unscored as `masked`: from then on its scores never change. Any other group is returned
        as it is. NotFound when it was never added."""
        here = groups.c.group_id == group_id
        sequence = connection.execute(select(groups.c.sequence).where(here).with_for_update()).scalar()
        if sequence is None:
            raise NotFound(f"there is no group {group_id}")
        (stored,) = load_groups(connection, here)
        if stored.outcome != "unscored" or stored.is_masked:
            return stored
        masked = stored.model_copy(update={"flags": (*stored.flags, "masked")})
        forget_words(connection, load_indexed_words(connection, [sequence]))
        connection.execute(update(groups).where(here).values(flags=encode_flags(masked.flags)))
        return masked

    @reads
    def list_unfinished(self, connection: Connection, limit: int) -> list[Group]:
        # The second term names the partial index.
        """Pending groups, oldest first, such as work that a restart interrupted. Where there may be replicas, without
        those that one of them has claimed (`PendingGroupStore.claim_due`)."""
        pending = (groups.c.outcome == "pending") & (groups.c.outcome != literal_column("'scored'"))
        if self.database.postgres:  # on SQLite this is the only service, so whoever claimed them is gone
            pending &= ~_CLAIMED
        return load_groups(connection, pending, limit)

    @reads
    def check_key(self, connection: Connection, key: IdempotencyKey) -> None:
        """InvalidRequest when the key was used with a different body."""
        _compare_key(connection, key)


async def _pack_long_texts(items: Sequence[GroupToStore]) -> Sequence[GroupToStore]:
    if not any([item.has_long_texts for item in items]):
        return items
    return await asyncio.to_thread(lambda: [item.pack() if item.has_long_texts else item for item in items])


def _recall_groups(connection: Connection, group_ids: Sequence[str]) -> dict[str, Group | None]:
    stored = {group.group_id: group for group in load_groups(connection, groups.c.group_id.in_(group_ids))}
    pruned = _find_pruned(connection, [one for one in group_ids if one not in stored])
    return {**stored, **dict.fromkeys(pruned)}


_SELECT_KNOWN: Final = PreparedStatement(
    lambda postgres: union_all(
        select(groups.c.group_id).where(is_among(groups.c.group_id, "given", postgres)),
        select(pruned_groups.c.group_id).where(is_among(pruned_groups.c.group_id, "given", postgres)),
    )
)


def _find_known_ids(connection: Connection, lists: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of each list those of groups that are stored, or were once."""
    stored_once = set(_SELECT_KNOWN.run(connection, given=list(chain(*lists))).scalars())
    return [[group_id for group_id in group_ids if group_id in stored_once] for group_ids in lists]


_CLAIMED = exists().where(
    parts.c.group_id == groups.c.group_id, parts.c.state == literal_column("'closed'"), parts.c.due.is_not(None)
)
"""It was gathered and has a scorer. Those who gather groups see to it that the scorer lives."""


# Adding: a group is stored once, in one transaction with the lease that it answers.


def add_groups(
    connection: Connection,
    database: Database,
    items: Sequence[GroupToStore],
    key: IdempotencyKey | None = None,
) -> list[Group]:
    """As `GroupStore.add`, in the caller's transaction. Where a group comes twice, the first is stored."""
    if key is not None:
        _claim_key(connection, database, key)
    if not items:
        return []
    by_id = {item.group.group_id: item for item in reversed(items)}
    require_unpruned(connection, by_id)
    answered = _find_answered_leases(connection, database, [item.group for item in items])
    arriving = [_flag_late(item.group, answered) for item in items]
    inserted = _insert_groups(connection, arriving, by_id)
    new = {group.group_id: group for group in reversed(arriving) if group.group_id in inserted}
    _insert_rollouts(connection, [(inserted[group_id], by_id[group_id]) for group_id in new])
    made = [(inserted[one], judgement) for one in new for judgement in by_id[one].judgements]
    _insert_judgements(connection, database, made, packed=_join_prompts(items))
    for group_id, group in new.items():
        counted = CountedGroup(group, inserted[group_id])
        note_group(connection, None, count_readings(counted, by_id[group_id].judgements))
    _complete_leases(connection, {answered[group_id]: group_id for group_id in new if group_id in answered})
    release_demands(connection, new.values())
    repeated = [group.group_id for group in arriving if group.group_id not in new]
    if repeated:
        new |= {group.group_id: group for group in load_groups(connection, groups.c.group_id.in_(repeated))}
    return [new[group.group_id] for group in arriving]


_SELECT_PRUNED: Final = PreparedStatement(
    lambda postgres: select(pruned_groups.c.group_id).where(is_among(pruned_groups.c.group_id, "given", postgres))
)


def _find_pruned(connection: Connection, group_ids: Collection[str]) -> frozenset[str]:
    if not group_ids:
        return frozenset()
    return frozenset(group_id for (group_id,) in _SELECT_PRUNED.fetch(connection, given=list(group_ids)))


def require_unpruned(connection: Connection, group_ids: Collection[str]) -> None:
    """Gone when one of them was pruned."""
    if gone := _find_pruned(connection, group_ids):
        raise Gone(describe_pruned(min(gone)))


def _flag_late(group: Group, answered: Mapping[str, str]) -> Group:
    if group.lease_id is None or group.group_id in answered or "late" in group.flags:
        return group
    return group.model_copy(update={"flags": (*group.flags, "late")})


def _find_answered_leases(connection: Connection, database: Database, arriving: Sequence[Group]) -> dict[str, str]:
    """The live lease that each group answers, by group id."""
    claimed = filter_storable(group.lease_id for group in arriving if group.lease_id is not None)
    if not claimed:
        return {}
    statement = (
        select(leases.c.lease_id, leases.c.run, tasks.c.task_id)
        .join_from(leases, tasks, IS_OF_TASK)
        .where(
            leases.c.lease_id.in_(claimed),
            leases.c.state == "live",
            leases.c.expires_at > database.read_lease_clock(connection),
            tasks.c.task_id.in_({group.task_id for group in arriving}),
        )
        .order_by(leases.c.lease_id)
        .with_for_update(of=leases)
    )
    free = {tuple(row) for row in connection.execute(statement)}
    answered: dict[str, str] = {}
    for group in arriving:
        claim = (group.lease_id, group.run, group.task_id)
        if group.lease_id is not None and claim in free:
            free.discard(claim)
            answered[group.group_id] = group.lease_id
    return answered


def _complete_leases(connection: Connection, answered: Mapping[str, str]) -> None:
    if answered:
        connection.execute(
            update(leases)
            .where(leases.c.lease_id == bindparam("answered"))
            .values(state="done", group_id=bindparam("answer")),
            [{"answered": lease_id, "answer": group_id} for lease_id, group_id in answered.items()],
        )


_INSERTED: Final = ("group_id", "sequence")


def _insert_groups(
    connection: Connection, arriving: Sequence[Group], by_id: Mapping[str, GroupToStore]
) -> dict[str, int]:
    """Inserts new groups and returns their sequences by id."""
    try:
        rows = [build_group_row(group, by_id[group.group_id].making) for group in arriving]
        return dict(insert_new_returning(connection, groups, rows, _INSERTED))
    except IntegrityError as error:
        raise NotFound("the group's task is not stored", field="task_id") from error


def _insert_rollouts(connection: Connection, new: Sequence[tuple[int, GroupToStore]]) -> None:
    rows = [row for sequence, item in new for row in build_rollout_rows(sequence, item.group.rollouts, item.packed)]
    insert_tuples(connection, rollouts, rows)


def _join_prompts(items: Sequence[GroupToStore]) -> Mapping[str, StoredPrompt]:
    return {text: stored for item in items for text, stored in item.prompts.items()}


def _insert_judgements(
    connection: Connection,
    database: Database,
    made: Sequence[tuple[int, Judgement]],
    scoring_sequence: int | None = None,
    packed: Mapping[str, StoredPrompt] | None = None,
) -> None:
    """Inserts judgements with the sequences of their groups, and of their scoring unless it is the group's own."""
    if not made:
        return
    stamp = database.read_clock()
    record_costs(connection, made, stamp)
    rows = build_judgement_rows(made, stamp, scoring_sequence, packed)
    insert_new_rows(connection, prompts, rows.prompts)
    insert_rows(connection, judgements, rows.judgements)


# Finishing: scores for rollouts that had none. A score that is stored never changes.


def _finish_groups(connection: Connection, database: Database, items: Sequence[GroupToStore]) -> list[Group]:
    arriving = {item.group.group_id: item for item in items}
    rows = _LOCK_GROUPS.run(connection, group_ids=list(arriving)).mappings().all()
    sequences = {row["group_id"]: row["sequence"] for row in rows}
    if missing := arriving.keys() - sequences.keys():
        raise NotFound(f"there is no group {min(missing)}")
    stored = {group.group_id: group for group in load_groups(connection, groups.c.group_id.in_(arriving))}
    finished = {group_id: _merge_scores(stored[group_id], arriving[group_id].group) for group_id in sequences}
    # Their words may be in the index already, with flags and rationales that change now.
    had_scores = [sequences[group_id] for group_id, group in stored.items() if group.outcome != "pending"]
    forget_words(connection, load_indexed_words(connection, had_scores))
    _update_groups(connection, [(sequences[one], stored[one], group) for one, group in finished.items()])
    made = [(sequences[item.group.group_id], judgement) for item in items for judgement in item.judgements]
    readings = load_readings(connection, sequences.values())  # before those are stored that this call brings
    made_now = {
        sequences[group_id]: item.making
        for group_id, item in arriving.items()
        if item.making is not None and finished[group_id] is not stored[group_id]
    }
    _put_makings(connection, made_now)
    _insert_judgements(connection, database, made, packed=_join_prompts(items))
    for row in rows:
        if row["counted"] == 1:
            group_id, sequence = row["group_id"], row["sequence"]
            before = CountedGroup(stored[group_id], sequence, *readings.get(sequence, ()))
            after = count_readings(
                replace(before, group=finished[group_id]), [one for of, one in made if of == sequence]
            )
            note_group(connection, before, after)
    release_demands(connection, finished.values())
    return [finished[item.group.group_id] for item in items]


_LOCK_GROUPS: Final = PreparedStatement(
    lambda postgres: (
        select(groups.c.group_id, groups.c.sequence, groups.c.counted)
        .where(is_among(groups.c.group_id, "group_ids", postgres))
        .order_by(groups.c.sequence)
        .with_for_update()
    )
)


def _merge_scores(stored: Group, arriving: Group) -> Group:
    """`stored`, with the arriving scores for rollouts that had none, unless it is masked."""
    if stored.is_masked:
        return stored
    new_scores = {rollout.rollout_id: rollout.score for rollout in arriving.rollouts}
    members = tuple(
        rollout
        if rollout.score.is_final or rollout.rollout_id not in new_scores
        else rollout.model_copy(update={"score": new_scores[rollout.rollout_id]})
        for rollout in stored.rollouts
    )
    flags = tuple(dict.fromkeys((*stored.flags, *arriving.flags)))
    outcome = combine_outcomes(member.score for member in members)
    return stored.model_copy(update={"rollouts": members, "flags": flags, "outcome": outcome})


_UPDATE_GROUP: Final = update(groups).where(groups.c.sequence == bindparam("of"))
_UPDATE_MAKING: Final = update(groups).where(groups.c.sequence == bindparam("of")).values(making=bindparam("how"))
_UPDATE_ROLLOUT: Final = update(rollouts).where(
    rollouts.c.group_sequence == bindparam("of"), rollouts.c.position == bindparam("at")
)


def _update_groups(connection: Connection, changes: Sequence[tuple[int, Group, Group]]) -> None:
    """Of each group its sequence, what it was and what it is now."""
    changed = [
        (sequence, position, rollout)
        for sequence, before, after in changes
        for position, rollout in enumerate(after.rollouts)
        if rollout is not before.rollouts[position]
    ]
    if changed:
        rows = [
            {"of": sequence, "at": position, **build_score_columns(one.score)} for sequence, position, one in changed
        ]
        connection.execute(_UPDATE_ROLLOUT, rows)
    heads = [
        {
            "of": sequence,
            "outcome": after.outcome,
            "flags": encode_flags(after.flags),
            "stale": int("stale" in after.flags),
            **build_sum_columns(after.scores),
        }
        for sequence, _, after in changes
    ]
    connection.execute(_UPDATE_GROUP, heads)


def _put_makings(connection: Connection, makings: Mapping[int, GroupMaking]) -> None:
    """By the groups' sequences, before the judgements are stored that they are of: those of tries that failed are
    before these."""
    if not makings:
        return
    own = (judgements.c.group_sequence.in_(makings), judgements.c.scoring_sequence.is_(None))
    counted = select(judgements.c.group_sequence, func.count()).where(*own).group_by(judgements.c.group_sequence)
    before = {sequence: int(count) for sequence, count in connection.execute(counted)}
    rows = [
        {
            "of": sequence,
            "how": encode(making.move_readings(before[sequence].__add__) if sequence in before else making),
        }
        for sequence, making in makings.items()
    ]
    connection.execute(_UPDATE_MAKING, rows)


# Idempotency keys: the same key with another body is refused.


def _claim_key(connection: Connection, database: Database, key: IdempotencyKey) -> None:
    row = {"key_digest": _compute_key_digest(key), "body_digest": key.body_digest, "created_at": database.read_clock()}
    connection.execute(database.insert_new(idempotency_keys), row)
    _compare_key(connection, key)


def _compare_key(connection: Connection, key: IdempotencyKey) -> None:
    statement = select(idempotency_keys.c.body_digest).where(idempotency_keys.c.key_digest == _compute_key_digest(key))
    if connection.execute(statement).scalar() not in {None, key.body_digest}:
        raise InvalidRequest("this key was already used with a different body", field="Idempotency-Key")


def _compute_key_digest(key: IdempotencyKey) -> str:
    return hashlib.sha256(key.key.encode("utf-8", "surrogatepass")).hexdigest()


# New scorings of stored groups, which never change a group or its own scores.


class _ScoringHead(Frozen):
    """The values of a scoring that are stored as JSON."""

    options: ScoringOptions = ScoringOptions()
    judges: tuple[str, ...] = ()
    mode: Mode | None = None
    rubric: Annotated[RubricLabel | None, Field(exclude_if=not_)] = None
    flags: tuple[str, ...] = ()


class ScoringStore(StorePart):
    """New scorings of stored groups. They never change a group, its scores or its statistics."""

    @reads
    def find(self, connection: Connection, scoring_ids: Sequence[str]) -> dict[str, Scoring]:
        """Without their judgements."""
        storable = filter_storable(scoring_ids)
        stored = load_scorings(connection, scorings.c.scoring_id.in_(storable)) if storable else ()
        return {scoring.scoring_id: scoring for scoring in stored}

    @writes("scorings")
    def put(self, connection: Connection, scoring: Scoring) -> Scoring:
        """Stores a scoring with the judgements made since it was last written; durable on return. Of an existing
        scoring only unscored completions are updated. Returns it as stored, without judgements. NotFound without its
        group."""
        of_group = select(groups.c.sequence).where(groups.c.group_id == scoring.group_id)
        group_sequence = connection.execute(of_group).scalar()
        if group_sequence is None:
            raise NotFound(f"there is no group {scoring.group_id}")
        sequence = _insert_scoring(connection, self.database, scoring, group_sequence)
        if sequence is None:
            sequence, stored = _complete_scoring(connection, scoring)
        else:
            stored = scoring.model_copy(update={"judgements": ()})
            rows = [_build_rescore_row(sequence, position, score) for position, score in enumerate(scoring.scores)]
            insert_rows(connection, rescores, rows)
        made = [(group_sequence, judgement) for judgement in scoring.judgements]
        _insert_judgements(connection, self.database, made, sequence)
        if made:  # whose prompts are here again
            whole = groups.c.reduced.bitwise_and(ALL_BITS - PART_BITS["judge_prompts"])
            here = (groups.c.sequence == group_sequence, groups.c.reduced.is_not(None))
            connection.execute(update(groups).where(*here).values(reduced=whole))
        return stored


def load_scorings(connection: Connection, statement_filter: ColumnElement[bool]) -> list[Scoring]:
    """Scorings without their judgements, oldest first."""
    statement = (
        select(scorings, groups.c.group_id)
        .join_from(scorings, groups, scorings.c.group_sequence == groups.c.sequence)
        .where(statement_filter)
        .order_by(scorings.c.sequence)
    )
    rows = connection.execute(statement).mappings().all()
    scores_of: defaultdict[int, list[Score]] = defaultdict(list)
    if rows:
        members = (
            select(rescores.c.scoring_sequence, rescores.c.score, *(rescores.c[name] for name in CALIBRATED_FIELDS))
            .where(rescores.c.scoring_sequence.in_([row["sequence"] for row in rows]))
            .order_by(rescores.c.scoring_sequence, rescores.c.position)
        )
        for row in connection.execute(members).mappings():
            scores_of[row["scoring_sequence"]].append(decode_score(row))
    return [_parse_scoring(row, scores_of[row["sequence"]]) for row in rows]


def _parse_scoring(row: RowMapping, scores: Sequence[Score]) -> Scoring:
    head = decode(_ScoringHead, row["head"])
    return Scoring(
        scoring_id=row["scoring_id"],
        group_id=row["group_id"],
        scoring_digest=row["scoring_digest"],
        options=head.options,
        judges=head.judges,
        mode=head.mode,
        rubric=head.rubric,
        outcome=row["outcome"],
        flags=head.flags,
        scores=tuple(scores),
        created_at=from_micros(row["created_at"]),
    )


def _insert_scoring(connection: Connection, database: Database, scoring: Scoring, group_sequence: int) -> int | None:
    """Inserts a scoring and returns its sequence; None if it existed."""
    head = _ScoringHead.model_validate({name: getattr(scoring, name) for name in _ScoringHead.model_fields})
    row = {
        "scoring_id": scoring.scoring_id,
        "group_sequence": group_sequence,
        "scoring_digest": scoring.scoring_digest,
        "outcome": scoring.outcome,
        "head": encode(head),
        "created_at": to_micros(scoring.created_at),
    }
    statement = database.insert_new(scorings).returning(scorings.c.sequence)
    return connection.execute(statement, row).scalar()


def _complete_scoring(connection: Connection, scoring: Scoring) -> tuple[int, Scoring]:
    """Adds the new scores to a stored scoring where it had none."""
    this = scorings.c.scoring_id == scoring.scoring_id
    sequence = connection.execute(select(scorings.c.sequence).where(this).with_for_update()).scalar_one()
    (stored,) = load_scorings(connection, this)
    merged = [old if old.outcome == "scored" else new for old, new in zip(stored.scores, scoring.scores, strict=True)]
    for position, (old, new) in enumerate(zip(stored.scores, merged, strict=True)):
        if new is not old:
            here = (rescores.c.scoring_sequence == sequence, rescores.c.position == position)
            connection.execute(update(rescores).where(*here).values(build_score_columns(new)))
    outcome = combine_outcomes(merged)
    connection.execute(update(scorings).where(this).values(outcome=outcome))
    return sequence, stored.model_copy(update={"scores": tuple(merged), "outcome": outcome})


def _build_rescore_row(sequence: int, position: int, score: Score) -> dict[str, str | int | float | None]:
    return {"scoring_sequence": sequence, "position": position, **build_score_columns(score)}
