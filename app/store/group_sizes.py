"""How many bytes groups take in the store: texts as they are, and about what a row costs beside them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Executable, LargeBinary, Table, cast, func, literal, select

from app.store.judge_tables import judgements
from app.store.tables import groups, prompts, rescores, rollouts, scores, scorings

ROW_BYTES: Final = 120
"""What a row costs beside its long texts: short columns, the row's head, its places in indexes."""
SAMPLES: Final = 24
"""Of one run's groups: half of them its oldest, half its newest."""


def measure_groups(connection: Connection, sequences: Sequence[int]) -> dict[int, int]:
    """The bytes of each of these groups. A prompt that others share counts for each."""
    found: dict[int, int] = defaultdict(int)
    for statement in _build_queries(connection, sequences):
        for sequence, rows, texts in connection.execute(statement):
            found[sequence] += int(rows) * ROW_BYTES + int(texts or 0)
    return dict(found)


def _build_queries(connection: Connection, sequences: Sequence[int]) -> list[Executable]:
    def count(table: Table, column: ColumnElement[int], *texts: str) -> Executable:
        lengths = sum((_measure_bytes(connection, table.c[name]) for name in texts), start=literal(0))
        return select(column, func.count(), func.sum(lengths)).where(column.in_(sequences)).group_by(column)

    rescored: Executable = (
        select(
            scorings.c.group_sequence,
            func.count(),
            func.sum(_measure_bytes(connection, rescores.c.score)),
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
        count(groups, groups.c.sequence, "head"),
        count(rollouts, rollouts.c.group_sequence, "completion", "packed", "score", "reduced"),
        count(scores, scores.c.group_sequence),
        count(judgements, judgements.c.group_sequence, "answer", "packed", "reduced"),
        rescored,
        prompted,
    ]


def _measure_prompt(connection: Connection) -> ColumnElement[int]:
    return _measure_bytes(connection, prompts.c.body) + _measure_bytes(connection, prompts.c.packed)


def _measure_bytes(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[int]:
    if connection.dialect.name == "postgresql":
        return func.coalesce(func.octet_length(column), 0)
    return func.coalesce(func.length(cast(column, LargeBinary)), 0)


@dataclass(frozen=True)
class GroupKind:
    """Groups that are alike in size: of one run, environment and purpose, with the same parts missing."""

    run: str | None
    environment: str
    purpose: str
    reduced: int | None


def match_kind(kind: GroupKind) -> list[ColumnElement[bool]]:
    return [
        groups.c.run.is_not_distinct_from(kind.run),
        groups.c.environment == kind.environment,
        groups.c.purpose == kind.purpose,
        groups.c.reduced.is_not_distinct_from(kind.reduced),
    ]


def draw_groups(connection: Connection, kind: GroupKind, *where: ColumnElement[bool]) -> list[int]:
    """The sequences of some groups of a kind."""
    here = (*match_kind(kind), *where)
    sequences: set[int] = set()
    for order in (groups.c.sequence, groups.c.sequence.desc()):
        found = select(groups.c.sequence).where(*here).order_by(order).limit(SAMPLES // 2)
        sequences.update(connection.execute(found).scalars())
    return sorted(sequences)


def estimate_group_bytes(connection: Connection, kind: GroupKind) -> float:
    """The mean of some groups of the kind; 0 where there are none."""
    sizes = measure_groups(connection, draw_groups(connection, kind)).values()
    return sum(sizes) / len(sizes) if sizes else 0.0
