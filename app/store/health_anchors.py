"""Which groups run health reads: frozen anchors, and what a shadow judge has not read."""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Final

from sqlalchemy import Connection, select

from app.domain.groups import Group
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.health_tables import health_readings, run_anchors
from app.store.judge_tables import judgements
from app.store.reduced_parts import has_text
from app.store.tables import groups, tasks

FIRST_GROUPS: Final = 64
"""Among so many of a run's first groups its anchors are chosen."""
GROUPS_LOOKED_AT: Final = 2_000
"""Where judges read so few groups, a run has fewer anchors, and no look reads the whole run for them."""
MOST_OF_ONE_LABEL: Final = 3


def load_anchors(connection: Connection, run: str) -> tuple[Group, ...]:
    chosen = select(run_anchors.c.group_sequence).where(run_anchors.c.run == run)
    return tuple(load_groups(connection, groups.c.sequence.in_(chosen)))


def find_anchors(connection: Connection, run: str, count: int) -> list[int]:
    """The sequences of groups that become anchors beside those that are known. Only groups that judges read, of which
    most replies passed the gates: the others tell nothing about a judge."""
    read = select(judgements.c.sequence).where(
        judgements.c.group_sequence == groups.c.sequence, judgements.c.scoring_sequence.is_(None)
    )
    early = select(groups.c.sequence).where(groups.c.run == run).order_by(groups.c.sequence).limit(GROUPS_LOOKED_AT)
    first = (
        select(groups.c.sequence, groups.c.environment, tasks.c.label)
        .join(tasks, tasks.c.task_id == groups.c.task_id)
        .where(groups.c.sequence.in_(early), groups.c.purpose == "train", groups.c.outcome == "scored", read.exists())
        .where(groups.c.size > 1, groups.c.absolute_sum > 0, has_text())
        .order_by(groups.c.sequence)
        .limit(FIRST_GROUPS)
    )
    known = set(connection.execute(select(run_anchors.c.group_sequence).where(run_anchors.c.run == run)).scalars())
    candidates = [(sequence, (environment, label)) for sequence, environment, label in connection.execute(first)]
    return _choose_anchors(candidates, known, count)


def add_anchors(connection: Connection, database: Database, run: str, chosen: Sequence[int]) -> tuple[Group, ...]:
    """All that the run has then."""
    still = select(groups.c.sequence).where(groups.c.sequence.in_(chosen), has_text()).with_for_update()
    for sequence in sorted(connection.execute(still).scalars()):
        row = {"run": run, "group_sequence": sequence, "created_at": database.read_clock()}
        connection.execute(database.insert_new(run_anchors), row)
    return load_anchors(connection, run)


def _choose_anchors(candidates: Sequence[tuple[int, tuple[str, str | None]]], known: Set[int], count: int) -> list[int]:
    """A few of each label at first; any once the first groups are all there."""
    chosen: list[int] = []
    labels = Counter(stratum for sequence, stratum in candidates if sequence in known)
    most = count if len(candidates) == FIRST_GROUPS else MOST_OF_ONE_LABEL
    for sequence, stratum in candidates:
        fits = stratum[1] is None or labels[stratum] < most
        if sequence not in known and fits and len(known) + len(chosen) < count:
            chosen.append(sequence)
            labels[stratum] += 1
    return chosen


def find_unread_group(connection: Connection, run: str) -> Group | None:
    read = select(health_readings.c.sequence).where(
        health_readings.c.run == run, health_readings.c.group_id == groups.c.group_id
    )
    newest = (
        select(groups.c.sequence)
        .where(groups.c.run == run, groups.c.purpose == "train", groups.c.outcome == "scored")
        .where(groups.c.absolute_sum > 0, has_text(), ~read.where(health_readings.c.kind == "shadow").exists())
        .order_by(groups.c.sequence.desc())
        .limit(1)
    )
    (group, *_) = load_groups(connection, groups.c.sequence.in_(newest)) or (None,)
    return group
