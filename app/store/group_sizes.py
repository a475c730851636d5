"""How many bytes groups take in the store: texts as they are, and about what a row costs beside them."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

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
        select(asked.c.group_sequence, func.count(), func.sum(_measure_bytes(connection, prompts.c.body)))
        .join_from(asked, prompts, prompts.c.digest == asked.c.prompt_digest)
        .group_by(asked.c.group_sequence)
    )
    return [
        count(groups, groups.c.sequence, "head"),
        count(rollouts, rollouts.c.group_sequence, "completion", "score"),
        count(scores, scores.c.group_sequence),
        count(judgements, judgements.c.group_sequence, "answer"),
        rescored,
        prompted,
    ]


def _measure_bytes(connection: Connection, column: ColumnElement[str]) -> ColumnElement[int]:
    if connection.dialect.name == "postgresql":
        return func.octet_length(column)
    return func.length(cast(column, LargeBinary))


def estimate_group_bytes(connection: Connection, run: str | None, environment: str, purpose: str) -> float:
    """The mean of some groups of the run; 0 where there are none."""
    here = (
        groups.c.run.is_not_distinct_from(run),
        groups.c.environment == environment,
        groups.c.purpose == purpose,
    )
    sequences: set[int] = set()
    for order in (groups.c.sequence, groups.c.sequence.desc()):
        found = select(groups.c.sequence).where(*here).order_by(order).limit(SAMPLES // 2)
        sequences.update(connection.execute(found).scalars())
    sizes = measure_groups(connection, sorted(sequences)).values()
    return sum(sizes) / len(sizes) if sizes else 0.0
