"""The store of new scorings of stored groups."""

from collections import defaultdict
from collections.abc import Sequence
from operator import not_
from typing import Annotated

from pydantic import Field
from sqlalchemy import ColumnElement, Connection, RowMapping, select, update

from app.domain.errors import NotFound
from app.domain.groups import Scoring
from app.domain.judging import Mode
from app.domain.rewards import combine_outcomes
from app.domain.rubrics import RubricLabel
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.values import Frozen
from app.ports.store import ScoringStore
from app.store.database import Database
from app.store.group_rows import CALIBRATED_FIELDS, build_score_columns, decode_score
from app.store.group_writes import insert_judgements
from app.store.inserts import insert_rows
from app.store.reduced_parts import ALL_BITS, PART_BITS
from app.store.rows import decode, encode, filter_storable, from_micros, to_micros
from app.store.tables import groups, rescores, scorings


class ScoringHead(Frozen):
    """The values of a scoring that are stored as JSON."""

    options: ScoringOptions = ScoringOptions()
    judges: tuple[str, ...] = ()
    mode: Mode | None = None
    rubric: Annotated[RubricLabel | None, Field(exclude_if=not_)] = None
    flags: tuple[str, ...] = ()


class SqlScoringStore(ScoringStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, scoring_ids: Sequence[str]) -> dict[str, Scoring]:
        wanted = filter_storable(scoring_ids)
        if not wanted:
            return {}
        found = await self._database.read(
            lambda connection: load_scorings(connection, scorings.c.scoring_id.in_(wanted))
        )
        return {scoring.scoring_id: scoring for scoring in found}

    async def put(self, scoring: Scoring) -> Scoring:
        return await self._database.write(
            lambda connection: _put_scoring(connection, self._database, scoring), "scorings"
        )


def load_scorings(connection: Connection, statement_filter: ColumnElement[bool]) -> list[Scoring]:
    """Scorings without their judgements, oldest first."""
    statement = (
        select(scorings, groups.c.group_id)
        .join_from(scorings, groups, scorings.c.group_sequence == groups.c.sequence)
        .where(statement_filter)
        .order_by(scorings.c.sequence)
    )
    rows = connection.execute(statement).mappings().all()
    given: defaultdict[int, list[Score]] = defaultdict(list)
    if rows:
        members = (
            select(rescores.c.scoring_sequence, rescores.c.score, *(rescores.c[name] for name in CALIBRATED_FIELDS))
            .where(rescores.c.scoring_sequence.in_([row["sequence"] for row in rows]))
            .order_by(rescores.c.scoring_sequence, rescores.c.position)
        )
        for row in connection.execute(members).mappings():
            given[row["scoring_sequence"]].append(decode_score(row))
    return [_parse_scoring(row, given[row["sequence"]]) for row in rows]


def _parse_scoring(row: RowMapping, scores: Sequence[Score]) -> Scoring:
    head = decode(ScoringHead, row["head"])
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


def _put_scoring(connection: Connection, database: Database, scoring: Scoring) -> Scoring:
    of_group = select(groups.c.sequence).where(groups.c.group_id == scoring.group_id)
    group_sequence = connection.execute(of_group).scalar()
    if group_sequence is None:
        raise NotFound(f"there is no group {scoring.group_id}")
    sequence = _insert_scoring(connection, database, scoring, group_sequence)
    if sequence is None:
        sequence, stored = _complete_scoring(connection, scoring)
    else:
        stored = scoring.model_copy(update={"judgements": ()})
        rows = [_build_rescore_row(sequence, place, score) for place, score in enumerate(scoring.scores)]
        insert_rows(connection, rescores, rows)
    made = [(group_sequence, judgement) for judgement in scoring.judgements]
    insert_judgements(connection, database, made, sequence)
    if made:  # whose prompts are here again
        whole = groups.c.reduced.bitwise_and(ALL_BITS - PART_BITS["judge_prompts"])
        here = (groups.c.sequence == group_sequence, groups.c.reduced.is_not(None))
        connection.execute(update(groups).where(*here).values(reduced=whole))
    return stored


def _insert_scoring(connection: Connection, database: Database, scoring: Scoring, group_sequence: int) -> int | None:
    """Inserts a scoring and returns its sequence; None if it existed."""
    head = ScoringHead.model_validate({name: getattr(scoring, name) for name in ScoringHead.model_fields})
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
    """Adds the given scores to a stored scoring where it had none."""
    this = scorings.c.scoring_id == scoring.scoring_id
    sequence = connection.execute(select(scorings.c.sequence).where(this).with_for_update()).scalar_one()
    (stored,) = load_scorings(connection, this)
    merged = [old if old.outcome == "scored" else new for old, new in zip(stored.scores, scoring.scores, strict=True)]
    for place, (old, new) in enumerate(zip(stored.scores, merged, strict=True)):
        if new is not old:
            here = (rescores.c.scoring_sequence == sequence, rescores.c.position == place)
            connection.execute(update(rescores).where(*here).values(build_score_columns(new)))
    outcome = combine_outcomes(merged)
    connection.execute(update(scorings).where(this).values(outcome=outcome))
    return sequence, stored.model_copy(update={"scores": tuple(merged), "outcome": outcome})


def _build_rescore_row(sequence: int, position: int, score: Score) -> dict[str, str | int | float | None]:
    return {"scoring_sequence": sequence, "position": position, **build_score_columns(score)}
